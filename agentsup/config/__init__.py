"""The declared configuration: agents.json, config.toml and the environment, as immutable snapshots.

Offers: reading with line and column, merging, comparing, explaining, and edits of the files.
Entry: ``snapshot`` reads all of it, ``watch`` tells of changes, ``diff`` compares two.
Owns: the files of the home that people write.
Never: knows the store, or what runs.
Short commands import ``home`` itself, which imports nothing heavy.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
