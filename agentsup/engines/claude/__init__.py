"""Engine ``claude``: Claude Code as a process, over its own stream of JSON lines."""

from __future__ import annotations

from agentsup.engines.claude.engine import ClaudeEngine

__all__ = ["ClaudeEngine"]
