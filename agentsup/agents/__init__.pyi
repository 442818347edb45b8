from .stack import AgentStack as AgentStack
from .stack import StackServices as StackServices
