"""The store: one SQLite file, one writer with group commit, and a few readers.

``Database`` is the interface; see ``store.database``.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
