"""The leases of one pump: they are renewed, turns that have lost theirs are ended (P3), and messages
that a turn did not settle are given back, to the queue or to their parking place."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox.mailbox import Mailbox
from agentsup.mailbox.messages.values import Claimed
from agentsup.mailbox.work.handler import Work
from agentsup.model.errors import LeaseLost, StoreUnavailable
from agentsup.model.ids import InstanceId
from agentsup.model.message import LEASE_RENEW_S, Lease

STORE_PAUSE_S = 1.0
"""The pause before another attempt while the store can't write."""
CANCEL_S = 4.0
"""Seconds that cancelled turns may take, here and at the end of a pump. It is below the stack's own
cancel grace of 5 s, so that leases are released before the stack itself is abandoned."""


class Renewal:
    """Renews what is in ``working``, which its pump changes."""

    def __init__(
        self,
        mailbox: Mailbox,
        tasks: TaskOwner,
        working: Mapping[asyncio.Task[None], Work],
        abandon: Callable[[asyncio.Task[None]], None],
    ) -> None:
        """``abandon`` is called with a turn that does not end without its lease, to free its slot."""
        self._mailbox = mailbox
        self._clock = mailbox.context.clock
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
                lost = await self._mailbox.leases.renew([work.lease for _, work in working])
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


class Releases:
    """The releases of one pump. It also knows which segments were begun with a claim and whose
    turns have not started, because these end with the release."""

    def __init__(self, mailbox: Mailbox, instance_id: InstanceId) -> None:
        self._mailbox = mailbox
        self._clock = mailbox.context.clock
        self._instance_id = instance_id
        self._unstarted: dict[str, int] = {}

    def begun(self, claimed: Claimed) -> None:
        """Note the segments that were begun with a claim."""
        self._unstarted |= {
            message_id: number for message_id, number in claimed.begun.items() if number is not None
        }

    def started(self, message_id: str) -> None:
        """The turn of the message has started, or was ended by a stop: it ends its segment."""
        self._unstarted.pop(message_id, None)

    async def release(self, lease: Lease) -> None:
        """Release the lease: the message is parked until the answer, or queued if it has come."""
        message_id = lease.message.message_id
        with suppress(LeaseLost):  # it was stopped
            try:
                await self._mailbox.leases.release(lease, begun=self._unstarted.get(message_id))
            except StoreUnavailable:
                return  # the pump's end, or the next claim, finds the message
        self._unstarted.pop(message_id, None)

    async def try_later(self, lease: Lease, error: StoreUnavailable) -> None:
        """Record an attempt, once the store can write, for a turn that could not be settled."""
        while True:
            await self._clock.sleep(STORE_PAUSE_S)
            try:
                await self._mailbox.leases.retry(lease, code=error.code, text=error.message)
            except StoreUnavailable:
                continue
            except LeaseLost:
                return
            return

    async def release_all(self, failure: BaseException | None, culprits: Sequence[str]) -> None:
        """Release every lease of the pump; count a crash on its culprits."""
        text = f"{type(failure).__name__}: {failure}" if culprits else ""
        try:
            await self._mailbox.leases.release_all(
                self._instance_id, culprits=culprits, text=text, begun=self._unstarted
            )
        except StoreUnavailable:
            return  # the next instance or boot takes the leases over when they have expired
