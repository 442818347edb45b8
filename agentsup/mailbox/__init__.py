"""Messages from acceptance to their one end: queues, leases, questions, stops, delivery.

Offers: ``Mailbox``; functions ending in ``_tx`` for owners of a transaction.
Entry: ``queue`` accepts, ``work`` leases, ``lifecycle`` ends, ``delivery`` sends.
Owns: messages, attempts, sessions, questions, the outbox, tool calls, usage, budgets.
Never: knows who does the work, or how a platform sends.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
