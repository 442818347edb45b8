"""The contract between the pump and the code that works on leased messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from agentsup.mailbox.messages.values import Claimed
from agentsup.mailbox.work.slots import TurnSlot
from agentsup.model.message import Lease
from agentsup.store import Tx


@dataclass(slots=True, eq=False)
class Work:
    """One lease in progress, as the handler sees it."""

    lease: Lease
    slot: TurnSlot
    stopped: bool = False
    """A stop, an interrupt or a lost lease ended this turn; its row is settled already."""
    segment_no: int | None = None
    """The number of the segment that was begun with the claim; None once it is in use."""
    next_claim: Callable[[], Callable[[Tx], None] | None] = lambda: None
    """Call it before the transaction that ends the turn, and its result, if any, at the end of it:
    that claims the agent's next message for the same slot."""
    note: str = ""
    """The turn's present activity, for people."""
    busy: int = 0
    """The number of tool calls in progress."""
    asks: int = 0
    """The number of questions that it waits for while its engine process runs."""
    next: Claimed | None = None
    """The message that was claimed in the transaction that ended this turn. A turn that has it has
    ended: it only returns."""
    is_suspended: bool = False
    """The turn was ended for now because it only waited; its message stays parked."""
    began_to_ask: Callable[[], None] = lambda: None

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Count the turn as waiting for a person inside the block."""
        self.asks, note, self.note = self.asks + 1, self.note, "waits for an approval"
        self.began_to_ask()
        try:
            yield
        finally:
            self.asks, self.note = self.asks - 1, note


class Handler(Protocol):
    """Works on messages. The default is ``agents.sessions.handler.SessionHandler``;
    a host may plug in its own.

    It settles the lease (complete, retry, park) before it returns. ``ExitRequested`` after that
    asks the stack to end, once the other turns have ended; any other exception is a crash of the
    stack.
    """

    async def handle(self, work: Work) -> None: ...
