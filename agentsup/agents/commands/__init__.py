"""Chat commands: what a person can say with a slash."""

from agentsup.agents.commands.dispatch import ChatCommands

__all__ = ["ChatCommands"]
