"""Strict stand-ins for services of others and for chance, for the demo and for tests."""
