from .stack import AgentStack as AgentStack
