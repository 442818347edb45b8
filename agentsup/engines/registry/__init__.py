"""Which engines there are, which one ``auto`` chooses, and which settings each of them supports."""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
