"""The general supervisor, in the manner of OTP: specs as data, one pure decision, bounded stops.

Public: ``ChildSpec``, ``ChildContext``, ``Grace``, ``Restart``, ``RestartPolicy``, ``Pool``,
``RestForOneSupervisor``, ``Board``, ``ChildStatus``, ``Watchdog``, and the decision itself in
``policy``.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
