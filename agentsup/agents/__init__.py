"""The running form of agents: stacks, turns, sessions, prompts, tools, roles and memory.

Offers: ``AgentStack``, what one agent consists of while it runs, built from its spec.
Entry: the daemon builds and runs stacks; the pump gives leased messages to ``sessions/handler``.
Owns: transcripts, results, memories, the programs that agents have started.
Never: knows a channel, a chat command or HTTP.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
