"""The tools agents may call: values in a registry."""

from agentsup.agents.tools.asking import asking_tool
from agentsup.agents.tools.files import file_tools
from agentsup.agents.tools.pages import result_tool
from agentsup.agents.tools.peers import peer_tools
from agentsup.agents.tools.registry import Tools
from agentsup.agents.tools.restarting import restart_tool
from agentsup.agents.tools.shared import shared_memory_tool
from agentsup.agents.tools.shell import exec_tool
from agentsup.agents.tools.web import web_tool

__all__ = [
    "Tools",
    "asking_tool",
    "exec_tool",
    "file_tools",
    "peer_tools",
    "restart_tool",
    "result_tool",
    "shared_memory_tool",
    "web_tool",
]
