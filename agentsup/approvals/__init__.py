"""The human gate: which calls a person is asked about, and the grants people have given.

Offers: ``ApprovalGate``, asked about each call before it runs, and ``Grants``.
Entry: the call pipeline of an agent.
Owns: grants.
Never: knows what a task is, or where a question is shown.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
