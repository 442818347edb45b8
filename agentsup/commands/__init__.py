"""Chat commands: texts that begin with a slash.

Offers: ``ChatCommands``, which finds the command of a text, checks who may use it and runs it.
Entry: a channel, for each text that begins with a slash; one module for each noun.
Owns: no table.
Never: knows the daemon: it calls the interfaces in ``model/control``.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
