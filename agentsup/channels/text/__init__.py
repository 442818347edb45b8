"""From an engine's Markdown to the text that a channel sends: parse, lay out, split.

Pure functions over values. No text of an answer is lost or doubled (P1, P2): its pieces joined are
the answer.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
