"""agentsup runs, supervises and connects your own AI agents.

The package is laid out in rings; ``docs/architecture.md`` draws them. Nothing is imported here, so
that a short command pays only for what it uses.
"""

from __future__ import annotations

__version__ = "0.1.0"
