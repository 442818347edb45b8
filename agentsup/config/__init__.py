"""The declared configuration: agents.json, config.toml and the environment, as immutable snapshots.

Import from the modules themselves: short commands need only ``home``, which imports nothing heavy.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
