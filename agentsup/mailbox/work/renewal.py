"""Renews the leases of the turns of one pump, and ends turns that have lost theirs (P3)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from agentsup.kit.clock import Clock
from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox.mailbox import Mailbox
from agentsup.mailbox.work.handler import Work
from agentsup.model.errors import StoreUnavailable
from agentsup.model.message import LEASE_RENEW_S

CANCEL_S = 4.0
"""Seconds that cancelled turns may take, here and at the end of a pump. It is below the stack's own
cancel grace of 5 s, so that leases are released before the stack itself is abandoned."""


class Renewal:
    """Renews what is in ``working``, which its pump changes."""

    def __init__(
        self,
        mailbox: Mailbox,
        clock: Clock,
        tasks: TaskOwner,
        working: Mapping[asyncio.Task[None], Work],
        abandon: Callable[[asyncio.Task[None]], None],
    ) -> None:
        """``abandon`` is called with a turn that does not end without its lease, to free its slot."""
        self._mailbox = mailbox
        self._clock = clock
        self._tasks = tasks
        self._working = working
        self._abandon = abandon
        self._has_work = asyncio.Event()

    def wake(self) -> None:
        """A turn has started."""
        self._has_work.set()

    async def run(self) -> None:
        """Renew until cancelled."""
        while True:
            if not self._working:  # an idle agent costs no timer
                self._has_work.clear()
                await self._has_work.wait()
            await self._clock.sleep(LEASE_RENEW_S)
            working = list(self._working.items())
            if not working:
                continue
            try:
                lost = await self._mailbox.renew([work.lease for _, work in working])
            except StoreUnavailable:
                continue
            for task, work in working:
                if work.lease.message.message_id in lost and not task.done():
                    work.stopped = True
                    self._tasks.spawn(self._end_lost(task), name=f"lost:{task.get_name()}")

    async def _end_lost(self, task: asyncio.Task[None]) -> None:
        task.cancel()
        await asyncio.wait({task}, timeout=CANCEL_S)
        if not task.done():
            self._abandon(task)
