"""The engines, the processes of their programs, and the guard around every engine.

Offers: an engine by its name and options: LLM APIs, coding agents, a command, scripted answers.
Entry: ``registry`` finds and builds one; ``guard`` runs it within its limits.
Owns: no table.
Never: knows the mailbox, the store or settings.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
