"""The tools agents may call: values in a registry."""

from agentsup.agents.tools.peers import peer_tools
from agentsup.agents.tools.registry import Tools
from agentsup.agents.tools.shared import shared_memory_tool

__all__ = ["Tools", "peer_tools", "shared_memory_tool"]
