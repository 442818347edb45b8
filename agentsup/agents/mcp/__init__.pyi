from .documents import idle as idle
from .programs import ServerProcesses as ServerProcesses
from .servers import AgentServers as AgentServers
from .services import McpServices as McpServices
