"""The checks of ``agentsup doctor``."""
