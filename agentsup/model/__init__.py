"""Frozen values, protocols and state tables that every other package uses. No I/O here."""
