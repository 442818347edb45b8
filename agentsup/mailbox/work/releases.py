"""Gives messages back whose turns did not settle them: to the queue, or to their parking place."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from agentsup.kit.clock import Clock
from agentsup.mailbox.mailbox import Mailbox
from agentsup.mailbox.messages.values import Claimed
from agentsup.model.errors import LeaseLost, StoreUnavailable
from agentsup.model.ids import InstanceId
from agentsup.model.message import Lease

STORE_PAUSE_S = 1.0
"""The pause before another attempt while the store can't write."""


class Releases:
    """The releases of one pump. It also knows which segments were begun with a claim and whose
    turns have not started, because these end with the release."""

    def __init__(self, mailbox: Mailbox, clock: Clock, instance_id: InstanceId) -> None:
        self._mailbox = mailbox
        self._clock = clock
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

    async def put_down(self, lease: Lease) -> None:
        """Release the lease: the message is parked until the answer, or queued if it has come."""
        message_id = lease.message.message_id
        with suppress(LeaseLost):  # it was stopped
            try:
                await self._mailbox.release(lease, begun=self._unstarted.get(message_id))
            except StoreUnavailable:
                return  # the pump's end, or the next claim, finds the message
        self._unstarted.pop(message_id, None)

    async def try_later(self, lease: Lease, error: StoreUnavailable) -> None:
        """Record an attempt, once the store can write, for a turn that could not be settled."""
        while True:
            await self._clock.sleep(STORE_PAUSE_S)
            try:
                await self._mailbox.retry(lease, code=error.code, text=error.message)
            except StoreUnavailable:
                continue
            except LeaseLost:
                return
            return

    async def release_all(self, failure: BaseException | None, culprits: Sequence[str]) -> None:
        """Release every lease of the pump; count a crash on its culprits."""
        text = f"{type(failure).__name__}: {failure}" if culprits else ""
        try:
            await self._mailbox.release_all(
                self._instance_id, culprits=culprits, text=text, begun=self._unstarted
            )
        except StoreUnavailable:
            return  # the next instance or boot takes the leases over when they have expired
