"""Files that people send, as a model sees them: pictures, and the text of documents."""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
