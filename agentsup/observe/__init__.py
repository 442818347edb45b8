"""Views into the running daemon, for people and programs: live text, logs, metrics and traces.

Offers: ``LiveHub``, ``LogSystem``, ``Metrics``, ``Redactor``, and traces read from the store.
Entry: the daemon sets up logs and metrics; turns write to the hub, channels and the page read it.
Owns: no table.
Never: decides anything, or knows how messages are queued.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
