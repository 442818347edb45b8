"""Budgets: what may be used in a scope, what is held for running turns, and what was used."""
