"""Roles: an agent's current instruction, and the tools that it may use at most meanwhile."""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
