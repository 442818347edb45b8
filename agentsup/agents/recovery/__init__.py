"""Recovery of a failed turn: kinds of failure, the next step, the model, and circuit breakers.

Decisions are pure functions over the recorded attempts.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
