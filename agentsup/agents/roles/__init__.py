"""Roles: what an agent is for at the moment, and the most it may use meanwhile."""
