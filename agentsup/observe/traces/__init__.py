"""Durable traces: what every turn did, kept beside it and never in its way."""
