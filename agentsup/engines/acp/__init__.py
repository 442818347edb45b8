"""The engine ``acp``: coding agents that speak the Agent Client Protocol over their stdio."""

from agentsup.engines.acp.engine import AcpEngine
from agentsup.engines.acp.presets import PRESETS, Preset

__all__ = ["PRESETS", "AcpEngine", "Preset"]
