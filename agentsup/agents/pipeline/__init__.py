"""The way of every call: policy, ceiling, approval, budget, journal, execution, what is shown."""

from agentsup.agents.pipeline.hooks import Hooks
from agentsup.agents.pipeline.pipeline import Pipeline
from agentsup.agents.pipeline.results import Results
from agentsup.agents.pipeline.stages import default_hooks

__all__ = ["Hooks", "Pipeline", "Results", "default_hooks"]
