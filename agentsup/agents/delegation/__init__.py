"""Delegation: who may give work to whom, and how runs are started, awaited and reported."""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
