"""A mailbox on a real store for tests: short words for the usual moves, time that can be pushed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from agentsup.kit.clock import LoopClock
from agentsup.kit.entropy import SeededEntropy
from agentsup.mailbox.mailbox import Completion, Mailbox, MailboxLimits
from agentsup.model.engine import Suspended
from agentsup.model.ids import AgentId
from agentsup.model.message import (
    Accepted,
    DeliverTo,
    Lane,
    Lease,
    NewMessage,
    Outcome,
    text_parts,
)
from agentsup.model.principal import Principal, PrincipalKind
from agentsup.model.question import Question
from agentsup.store.database import Database, StoreOptions
from agentsup.store.runner import InlineRunner, Runner, ThreadRunner
from agentsup.testing.fresh_store import lay_store

__all__ = ["BOB", "WIDE", "MailRig"]

BOB = Principal(PrincipalKind.PERSON, "bob", "Bob")
WIDE = {Lane.INTERACTIVE: 99, Lane.PEER: 99, Lane.BACKGROUND: 99}


class MailRig:
    """One store, one mailbox at a time; ``reboot`` begins the next life of the daemon."""

    def __init__(self, db: Database, clock: LoopClock, limits: MailboxLimits) -> None:
        self.db = db
        self.clock = clock
        self.limits = limits
        self.boots = 0
        self.due_at: int | None = None
        """What the last claim said of the next delayed message."""
        self.entropy = SeededEntropy(clock, 7)
        self.mailbox = self._next_life()

    @classmethod
    async def open(
        cls, home: Path, *, threads: bool = False, limits: MailboxLimits | None = None
    ) -> Self:
        """A fresh store under ``home``; with ``threads`` as in production, else in the loop."""
        clock = LoopClock()
        path = home / "state.db"
        runner: Runner = ThreadRunner(1)
        if not threads:
            runner = InlineRunner(
                path, clock=clock, entropy=SeededEntropy(clock, 1), max_delay_s=0.0
            )
        options = StoreOptions(reserve_bytes=0, slow_ms=10_000)
        db = await Database.open(lay_store(path), clock=clock, runner=runner, options=options)
        return cls(db, clock, limits or MailboxLimits())

    async def close(self) -> None:
        await self.db.close()

    def _next_life(self) -> Mailbox:
        self.boots += 1
        boot_id = f"boot-{self.boots}"
        return Mailbox(self.db, self.clock, self.entropy, boot_id=boot_id, limits=self.limits)

    async def reboot(self) -> None:
        """The process died and started again: leases of before are void."""
        self.mailbox = self._next_life()
        await self.mailbox.load()

    def later(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.skip_ms(round(seconds * 1000))

    def new(self, text: str = "hello", agent: str = "ann", **changes: Any) -> NewMessage:
        """A chat message of Bob's in conversation ``c1`` of console; any field can be changed."""
        conversation = changes.pop("conversation", "c1")
        new = NewMessage(
            agent_id=AgentId(agent),
            session_key=f"chat:console:{conversation}",
            parts=text_parts(text),
            principal=BOB,
            deliver_to=DeliverTo(
                "chat", agent_id=agent, channel="console", conversation=conversation
            ),
        )
        return replace(new, **changes)

    async def put(self, text: str = "hello", agent: str = "ann", **changes: Any) -> Accepted:
        return await self.mailbox.accept(self.new(text, agent, **changes))

    async def claim(
        self, agent: str = "ann", instance: str = "i1", free: Mapping[Lane, int] = WIDE
    ) -> list[Lease]:
        """Claim with plenty of slots, or with those given."""
        claimed = await self.mailbox.claim(agent, instance, free)
        self.due_at = claimed.due_at
        return list(claimed.leases)

    async def one(self, agent: str = "ann", instance: str = "i1") -> Lease:
        """Claim exactly one message."""
        (lease,) = await self.claim(agent, instance)
        return lease

    async def finish(self, lease: Lease, text: str = "done") -> None:
        await self.mailbox.complete(lease, Completion(Outcome.OK, text))

    async def fail(self, lease: Lease, text: str = "broken") -> None:
        completion = Completion(Outcome.FAILED, error_code="engine_failed", error_text=text)
        await self.mailbox.complete(lease, completion)

    async def park(self, lease: Lease, **changes: Any) -> Question:
        ask = replace(Suspended(b"checkpoint", "May I?", ("yes", "no")), **changes)
        return await self.db.write(lambda tx: self.mailbox.park_tx(tx, lease, ask))

    async def wait_for(self, lease: Lease, target_id: str) -> None:
        await self.db.write(lambda tx: self.mailbox.wait_tx(tx, lease, target_id))

    async def sql(self, query: str, *params: Any) -> list[tuple[Any, ...]]:
        """Rows as the database has them, past all code of the mailbox."""
        return await self.db.read(lambda reader: [tuple(row) for row in reader.all(query, params)])

    async def state_of(self, message_id: str) -> str:
        ((state,),) = await self.sql("SELECT state FROM messages WHERE message_id = ?", message_id)
        return str(state)

    async def outbox(self, where: str = "1") -> list[tuple[Any, ...]]:
        """(kind, channel, conversation, text) of the rows to deliver."""
        return await self.sql(
            "SELECT kind, channel, conversation, json_extract(body, '$.text') FROM outbox"
            f" WHERE {where} ORDER BY outbox_id"
        )

    async def check(self) -> None:
        """The laws that hold at every instant, asked of plain SQL."""
        holds, sums = await self.mailbox.conservation()
        assert holds, f"conservation law broken: {sums}"
        real = dict(await self.sql("SELECT agent_id || state, COUNT(*) FROM messages GROUP BY 1"))
        kept = dict(
            await self.sql(
                "SELECT agent_id || state, count FROM counts WHERE state <> 'accepted' AND count"
            )
        )
        assert real == kept, f"counts {kept} differ from rows {real}"
        crowded = await self.sql(
            "SELECT session_id FROM messages WHERE state IN ('leased', 'parked')"
            " GROUP BY session_id HAVING COUNT(*) > 1"
        )
        assert not crowded, f"sessions held twice: {crowded}"
        twice = await self.sql(
            "SELECT message_id FROM events WHERE type = 'message.done'"
            " GROUP BY message_id HAVING COUNT(*) > 1"
        )
        assert not twice, f"completed twice: {twice}"
