"""From the outbox to a channel: parts, attempts, the relay, and notices to people."""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
