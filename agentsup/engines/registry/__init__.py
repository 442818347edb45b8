"""The engines by name, the choice of ``auto``, and the settings that each engine supports."""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
