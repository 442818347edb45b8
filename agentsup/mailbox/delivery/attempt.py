"""One delivery: give a part to its channel within a time limit and decide what to record.

A channel returns what happened and must not raise. If it raises or hangs all the same, the outcome
is unknown, and no other part is affected (P2, P3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from agentsup.kit import backoff, faults
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.kit.log import get_logger
from agentsup.kit.tasks import TaskOwner, stop_task
from agentsup.mailbox.delivery.steps import Settlement
from agentsup.model.channel import (
    Channel,
    Delivery,
    DeliveryOutcome,
    NotBegun,
    OutboxPart,
)

_log = get_logger(__name__)
_STOP_S = 1.0

Marking = Callable[[bool], Awaitable[None]]
"""Commits whether the next piece of a part is begun. Raises ``NotBegun``."""


@dataclass(frozen=True, slots=True)
class RelayLimits:
    """Bounds of the relay. Times in seconds."""

    slots: int = 32
    """Concurrent deliveries per channel, slow ones not counted."""
    lanes: int = 512
    """Concurrent conversations per channel, slow ones counted."""
    burst: int = 8
    """Parts that one conversation sends before it gives its slot to others."""
    slow_s: float = 2.0
    """A delivery that takes longer gives its slot to others and goes on."""
    timeout_s: float = 60.0
    """A delivery that takes longer is ended; its outcome is unknown."""
    file_timeout_s: float = 600.0
    """The same for a part of kind file, which may be large and the line slow."""
    retry_cap_s: float = 60.0
    """Longest pause between attempts that the relay chooses by itself."""
    retry_after_cap_s: float = 3600.0
    """Longest pause that a platform may ask for."""
    unknown_max: int = 8
    """Attempts of unknown outcome through an idempotent channel before the part is given up."""
    net_s: float = 5.0
    """All channels are read at this interval, in case a wake was lost. Work found only by it is
    counted as a fault (``lost_wakes``)."""
    store_pause_s: float = 1.0
    """Pause while the store can't be used."""


@dataclass(slots=True)
class RelayStats:
    """Running totals since the start of the process."""

    delivered: int = 0
    retried: int = 0
    unknown: int = 0
    refused: int = 0
    timed_out: int = 0
    faults: int = 0
    """Deliveries in which the channel raised, which it never should."""
    lost_wakes: int = 0
    lanes: int = 0
    """Conversations that have a lane now."""


class DeliveryAttempts:
    """The deliveries of one run of the relay."""

    def __init__(
        self, clock: Clock, entropy: Entropy, limits: RelayLimits, stats: RelayStats
    ) -> None:
        self._clock = clock
        self._entropy = entropy
        self._limits = limits
        self._stats = stats
        # An exception of a delivery is handled where its outcome is decided.
        self._owner = TaskOwner("relay deliveries", on_error=lambda task, error: None)

    async def close(self) -> None:
        """Cancel the current deliveries; bounded in time."""
        left = await self._owner.close(_STOP_S)
        if left:
            _log.error(f"deliveries that did not end: {', '.join(left)}")

    async def deliver(
        self, channel: Channel, part: OutboxPart, on_slow: Callable[[], None], mark: Marking
    ) -> Settlement:
        """Deliver ``part`` and return what to record.

        ``on_slow`` is called if it takes long. For a channel that is not idempotent, ``mark(True)``
        is called when it is about to send, and ``mark(False)`` if it was refused and tries another
        form. Never raises for what the channel does; a cancellation of the caller cancels the
        delivery.
        """
        faults.point("outbox.before_deliver")
        delivery = await self._attempt(channel, part, on_slow, mark)
        faults.point("outbox.after_deliver")
        return self._settlement(part, delivery, idempotent=channel.idempotent)

    async def _attempt(
        self, channel: Channel, part: OutboxPart, on_slow: Callable[[], None], marking: Marking
    ) -> Delivery:
        limits = self._limits
        limit_s = limits.file_timeout_s if part.kind == "file" else limits.timeout_s
        slow_s = min(self._limits.slow_s, limit_s)
        mark = _BeginMark(None if channel.idempotent else marking)
        task = self._owner.spawn(
            channel.deliver(part, mark), name=f"deliver:{part.channel}/{part.outbox_id}"
        )
        try:
            await asyncio.wait({task}, timeout=slow_s)
            if not task.done():
                on_slow()
                await asyncio.wait({task}, timeout=limit_s - slow_s)
            if task.done():
                return self._said(task)
            self._stats.timed_out += 1
            _log.warning(f"{task.get_name()} took over {limit_s:g} s")
            if not await stop_task(task, timeout_s=_STOP_S):
                _log.error(f"{task.get_name()} ignores its cancellation")
            detail = f"no answer within {limit_s:g} s"
            if mark.is_open:
                return Delivery(DeliveryOutcome.RETRY, detail)
            # The other pieces follow; a channel that finds none left reports the end.
            return Delivery(DeliveryOutcome.UNKNOWN, detail, more=channel.in_pieces)
        finally:
            task.cancel()  # nothing if it is done; else the relay itself is being cancelled

    def _said(self, task: asyncio.Task[Delivery]) -> Delivery:
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is None:
            return task.result()
        if isinstance(error, NotBegun):
            return Delivery(DeliveryOutcome.RETRY, error.message)
        self._stats.faults += 1
        _log.error(f"{task.get_name()} raised instead of saying what happened", exc_info=error)
        return Delivery(DeliveryOutcome.UNKNOWN, f"the channel failed: {error!r}")

    def _settlement(self, part: OutboxPart, delivery: Delivery, *, idempotent: bool) -> Settlement:
        """The row's new state. An unknown outcome is tried again through an idempotent channel."""
        now = self._clock.now_ms()
        is_open = delivery.outcome is DeliveryOutcome.UNKNOWN and not delivery.is_final
        if is_open and idempotent and part.attempts + 1 < self._limits.unknown_max:
            delivery = replace(delivery, outcome=DeliveryOutcome.RETRY)
        match delivery.outcome:
            case DeliveryOutcome.RETRY:
                self._stats.retried += 1
                return Settlement(part, delivery, now, self._pause_ms(part, delivery))
            case DeliveryOutcome.DELIVERED:
                self._stats.delivered += not (delivery.more or part.doubts)
            case DeliveryOutcome.UNKNOWN:
                self._stats.unknown += 1
                _log.warning(f"part {part.outbox_id} may not have arrived: {delivery.detail}")
            case DeliveryOutcome.REFUSED:
                self._stats.refused += 1
                _log.warning(f"part {part.outbox_id} was refused: {delivery.detail}")
        return Settlement(part, delivery, now)

    def _pause_ms(self, part: OutboxPart, delivery: Delivery) -> int:
        asked_s = min(delivery.retry_after_s, self._limits.retry_after_cap_s)
        if delivery.is_free:
            return max(1, round(asked_s * 1000))
        own_s = backoff.delay_s(
            part.attempts,
            cap_s=self._limits.retry_cap_s,
            unit=self._entropy.uniform(0.0, 1.0),
        )
        return max(1, round(max(own_s, asked_s) * 1000))


class _BeginMark:
    """Implements ``model.channel.Begin``; remembers whether the piece may be marked as begun."""

    def __init__(self, commit: Marking | None) -> None:
        """``commit`` is None for a channel that may be given a piece twice."""
        self._commit = commit
        self._may_be_begun = False

    @property
    def is_open(self) -> bool:
        """Whether the piece was surely not sent."""
        return self._commit is not None and not self._may_be_begun

    async def __call__(self) -> None:
        if self._commit is None or self._may_be_begun:
            return
        self._may_be_begun = True  # set first: a commit whose caller is cancelled is still made
        try:
            await self._commit(True)
        except NotBegun:
            self._may_be_begun = False
            raise

    async def refused(self) -> None:
        if self._commit is None or not self._may_be_begun:
            return
        self._may_be_begun = False  # even if the mark stays: nothing was sent
        await self._commit(False)
