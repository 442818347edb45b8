"""The engine ``acp``: coding agents that speak the Agent Client Protocol over their stdio.

``engine.AcpEngine`` runs them, ``presets.PRESETS`` knows them by name. Nothing is imported here, as
the table is read where no agent runs.
"""
