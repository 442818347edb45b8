from .documents import idle as idle
from .programs import ServerProcesses as ServerProcesses
from .server import McpServices as McpServices
from .servers import AgentServers as AgentServers
