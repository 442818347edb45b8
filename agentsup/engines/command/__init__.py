"""Engine ``command``: any program, started once for each turn; see ``events`` for what it may say."""

from agentsup.engines.command.engine import CommandEngine

__all__ = ["CommandEngine"]
