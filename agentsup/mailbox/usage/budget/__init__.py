"""Budgets: the limits of a scope, reservations (holds) for running turns, and what was used."""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
