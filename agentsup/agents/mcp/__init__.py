"""Agents' own tool servers, by the Model Context Protocol."""
