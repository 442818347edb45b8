"""The general supervisor, in the manner of OTP: specs as data, one pure decision, bounded stops.

Offers: ``SupervisedChild``, ``RestForOneSupervisor``, ``Board`` (states of children), ``Watchdog``.
Entry: a ``ChildSpec``; the decision after an end is in ``policy``.
Owns: no table.
Never: knows what a child does.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
