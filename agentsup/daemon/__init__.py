"""The composition root and the AgentSupervisor: the only place that knows concrete classes."""
