"""Frozen values, protocols and state tables: what every other package speaks. No I/O here."""
