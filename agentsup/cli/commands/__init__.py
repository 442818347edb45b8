"""The commands of ``agentsup``, one module for each group."""
