"""The engine ``acp``: coding agents that speak the Agent Client Protocol over their stdio.

``engine.AcpEngine`` runs them, ``engines.programs.presets.PRESETS`` has them by name.
"""
