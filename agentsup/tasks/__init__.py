"""Background work: tasks, their runs and schedules.

Offers: ``TaskHub``, ``Scheduler``, ``Runs``, and reading of times that people write.
Entry: ``hub`` for what people and agents ask, ``scheduler`` for what is due.
Owns: tasks, runs, schedules, and the role and persona of a session.
Never: knows tools, commands or approvals.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
