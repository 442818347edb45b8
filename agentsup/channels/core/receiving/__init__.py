"""From a received update to an accepted message: order within a chat, refusals, quarantine, stops."""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
