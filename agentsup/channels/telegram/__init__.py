"""Telegram: updates come in through a durable inbox, answers go out through the outbox."""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
