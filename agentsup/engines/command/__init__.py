"""Engine ``command``: any program, started once for each turn; see ``events`` for its output."""

from __future__ import annotations

from agentsup.engines.command.engine import CommandEngine

__all__ = ["CommandEngine"]
