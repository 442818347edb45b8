"""Engine ``claude``: Claude Code as a child, spoken to in its own stream of JSON lines."""

from agentsup.engines.claude.engine import ClaudeEngine

__all__ = ["ClaudeEngine"]
