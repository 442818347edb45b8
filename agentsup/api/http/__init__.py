"""The path of each request: connections, gate, callers, rights, errors, and the dependencies of
routes."""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
