"""A channel that keeps what the world saw, and misbehaves on request: the twin of every real one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from agentsup.model.channel import Begin, Delivery, DeliveryOutcome, OutboxPart
from tests.support.bound import BOUND_S

Act = Delivery | BaseException | asyncio.Event
"""What a delivery does: say this, raise this, or hang until this event is set and then deliver."""

DELIVERED = Delivery(DeliveryOutcome.DELIVERED)


class RecordingChannel:
    """Delivers to a list. By default every part arrives at once.

    ``plan`` (and ``plan_for`` one conversation) queue what the next deliveries do instead. ``sent`` is
    what people have in front of them: a part whose sender hears "unknown" did arrive, like a
    message whose confirmation was lost.
    """

    def __init__(self, name: str = "recording", *, idempotent: bool = False) -> None:
        self.name = name
        self.idempotent = idempotent
        self.in_pieces = False
        self.is_event = False
        self.sent: list[OutboxPart] = []
        self.attempts: list[OutboxPart] = []
        self.waits: asyncio.Event | None = None
        """What each delivery waits for before it begins to send, such as a turn of its own."""
        self.begun = 0
        """How many deliveries have come to the point where they send."""
        self.running = 0
        self.most_running = 0
        self._plan: deque[Act] = deque()
        self._plans: dict[str, deque[Act]] = {}
        self._changed = asyncio.Event()

    def plan(self, *acts: Act) -> None:
        """What the next deliveries do, whichever conversation they are for."""
        self._plan.extend(acts)

    def plan_for(self, conversation: str, *acts: Act) -> None:
        """What the next deliveries to ``conversation`` do; goes before ``plan``."""
        self._plans.setdefault(conversation, deque()).extend(acts)

    def texts(self, conversation: str | None = None) -> list[str]:
        """The texts people have, in order; of one conversation or of all."""
        return [
            str(part.body.get("text", ""))
            for part in self.sent
            if conversation is None or part.conversation == conversation
        ]

    async def wait_for(self, is_so: Callable[[], bool], timeout_s: float = BOUND_S) -> None:
        """Return once ``is_so()``, looked at after each attempt; ``TimeoutError`` after
        ``timeout_s``."""
        async with asyncio.timeout(timeout_s):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()

    async def wait_sent(self, count: int, timeout_s: float = BOUND_S) -> None:
        """Return once at least ``count`` parts have arrived."""
        await self.wait_for(lambda: len(self.sent) >= count, timeout_s)

    async def deliver(self, part: OutboxPart, begin: Begin) -> Delivery:
        """Do what is planned, else deliver."""
        self.attempts.append(part)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        self._changed.set()
        try:
            return await self._act(self._next_act(part.conversation), part, begin)
        finally:
            self.running -= 1
            self._changed.set()

    def _next_act(self, conversation: str) -> Act:
        for plan in (self._plans.get(conversation), self._plan):
            if plan:
                return plan.popleft()
        return DELIVERED

    async def _act(self, act: Act, part: OutboxPart, begin: Begin) -> Delivery:
        if self.waits is not None:
            await self.waits.wait()
        await begin()
        self.begun += 1
        self._changed.set()
        match act:
            case BaseException():
                raise act
            case asyncio.Event():
                await act.wait()
                self.sent.append(part)
                return DELIVERED
            case Delivery(outcome=DeliveryOutcome.DELIVERED | DeliveryOutcome.UNKNOWN):
                self.sent.append(part)
        assert isinstance(act, Delivery)
        return act


class NoMark:
    """Implements ``model.channel.Begin`` for a channel that is given a part by hand: marks nothing."""

    def __init__(self) -> None:
        self.begun = 0

    async def __call__(self) -> None:
        self.begun += 1

    async def refused(self) -> None:
        return


def ids(parts: Iterable[OutboxPart]) -> list[int]:
    """The outbox ids of ``parts``, in order."""
    return [part.outbox_id for part in parts]
