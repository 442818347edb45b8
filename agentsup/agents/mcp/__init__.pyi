from .servers import AgentServers as AgentServers
from .services import McpServices as McpServices
from .services import ServerProcesses as ServerProcesses
from .services import idle as idle
