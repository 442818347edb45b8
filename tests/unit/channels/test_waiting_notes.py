"""Waiting notes whose bot ends before they have begun to wait."""

from __future__ import annotations

import gc
import warnings
from types import SimpleNamespace
from typing import Any

from agentsup.channels.core.live.waiting_notes import WaitingNotes


async def test_a_bot_that_ends_at_once_leaves_no_coroutine_behind() -> None:
    never_used: Any = SimpleNamespace(agent_id="m", database=None, clock=None, entropy=None)
    waiting = WaitingNotes(never_used, "telegram", never_used, 3.0)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        waiting.watch("m1", "1")
        await waiting.close()
        del waiting
        gc.collect()
    assert [str(warning.message) for warning in seen] == []
