"""An agent's memory beyond a session, and the shortening of sessions that are too long."""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
