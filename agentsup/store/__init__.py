"""The store: one SQLite file, one writer with group commit, and a few readers.

Offers: ``Database`` (see ``store.database``), the log of events, migrations, backups, retention.
Entry: ``Database.write`` and ``Database.read`` with a function over ``Tx`` or ``Reader``.
Owns: agents and events; all other tables have owners above, listed in ``owners.toml``.
Never: knows what the rows of others mean.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
