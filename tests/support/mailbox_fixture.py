"""A mailbox on a real store for tests: short words for the usual moves, time that can be pushed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from agentsup.fakes.entropy import SeededEntropy
from agentsup.mailbox import Mailbox
from agentsup.mailbox.mail import Subscribers, Subscriptions
from agentsup.mailbox.messages import Completion, MailboxLimits
from agentsup.mailbox.queue import waits
from agentsup.mailbox.work import Work
from agentsup.model.engine import Suspended
from agentsup.model.ids import AgentId
from agentsup.model.message import (
    Accepted,
    DeliverTo,
    LaneName,
    Lease,
    MessageOutcome,
    NewMessage,
    text_parts,
)
from agentsup.model.principal import PersonRole, Principal, PrincipalKind
from agentsup.model.question import Question
from agentsup.store import Database, Runner, StoreOptions, ThreadRunner, Tx
from tests.support.empty_store import lay_store
from tests.support.inline_runner import InlineRunner
from tests.support.loop_clock import LoopClock

BOB = Principal(PrincipalKind.PERSON, "bob", "Bob")
WIDE = {LaneName.INTERACTIVE: 99, LaneName.PEER: 99, LaneName.BACKGROUND: 99}

OPEN_OF_AGENTS = (
    "SELECT agent_id, COUNT(*) FROM messages WHERE state IN ('queued', 'leased', 'parked')"
    " GROUP BY agent_id"
)


class StillClock(LoopClock):
    """A clock of the loop that can be told to stand still; ``skip_ms`` moves it all the same."""

    _still_s: float | None = None

    def stand_still(self) -> None:
        """From now on only ``skip_ms`` and ``jump_ms`` move it, however long the machine takes."""
        self._still_s = self.monotonic()

    def monotonic(self) -> float:
        return super().monotonic() if self._still_s is None else self._still_s

    def skip_ms(self, delta_ms: int) -> None:
        super().skip_ms(delta_ms)
        if self._still_s is not None:
            self._still_s += delta_ms / 1000


class MailboxFixture:
    """One store, one mailbox at a time; ``reboot`` begins the next life of the daemon."""

    def __init__(self, db: Database, clock: StillClock, limits: MailboxLimits) -> None:
        self.db = db
        self.clock = clock
        self.limits = limits
        self.boots = 0
        self.due_at: int | None = None
        """What the last claim said of the next delayed message."""
        self.roles: dict[str, PersonRole | None] = {}
        """What people may now, by their subject; whoever is not named keeps the role they had."""
        self.subscribers: Subscribers = {}
        """Who subscribes to whose work."""
        self.entropy = SeededEntropy(clock, 7)
        self.mailbox = self._next_life()

    @classmethod
    async def open(
        cls, home: Path, *, threads: bool = False, limits: MailboxLimits | None = None
    ) -> Self:
        """A fresh store under ``home``; with ``threads`` as in production, else in the loop."""
        clock = StillClock()
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
        return Mailbox(
            self.db,
            self.clock,
            self.entropy,
            boot_id=boot_id,
            limits=self.limits,
            role_now=lambda subject: self.roles.get(subject, PersonRole.MANAGER),
            message_observers=(Subscriptions(lambda: self.subscribers),),
        )

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
        return await self.mailbox.queue.accept(self.new(text, agent, **changes))

    async def claim(
        self, agent: str = "ann", instance: str = "i1", free: Mapping[LaneName, int] = WIDE
    ) -> list[Lease]:
        """Claim with plenty of slots, or with those given."""
        claimed = await self.mailbox.leases.claim(agent, instance, free)
        self.due_at = claimed.due_at
        return list(claimed.leases)

    async def one(self, agent: str = "ann", instance: str = "i1") -> Lease:
        """Claim exactly one message."""
        (lease,) = await self.claim(agent, instance)
        return lease

    async def finish(self, lease: Lease, text: str = "done") -> None:
        await self.mailbox.leases.complete(lease, Completion(MessageOutcome.OK, text))

    async def end_turn(self, work: Work) -> None:
        """End a turn as the handler of agents does: the next message is claimed with it."""
        claim_next, end = work.next_claim(), Completion(MessageOutcome.OK, "done")

        def commit(tx: Tx) -> None:
            self.mailbox.leases.complete_tx(tx, work.lease, end)
            if claim_next is not None:
                claim_next(tx)

        await self.db.write(commit, name="turn.complete", closing=True)

    async def fail(
        self, lease: Lease, text: str = "broken", *, code: str = "engine_failed"
    ) -> None:
        completion = Completion(MessageOutcome.FAILED, error_code=code, error_text=text)
        await self.mailbox.leases.complete(lease, completion)

    async def park(self, lease: Lease, **changes: Any) -> Question:
        ask = replace(Suspended(b"checkpoint", "May I?", ("yes", "no")), **changes)
        return await self.db.write(lambda tx: self.mailbox.questions.park_tx(tx, lease, ask))

    async def wait_for(self, lease: Lease, target_id: str) -> None:
        await self.db.write(lambda tx: waits.wait_tx(self.mailbox.context, tx, lease, target_id))

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

    async def loads(self) -> dict[str, int]:
        """How many open messages each agent has in the store."""
        return dict(await self.sql(OPEN_OF_AGENTS))

    async def check_loads(self) -> None:
        """The loads in memory are those of the store."""
        stored = await self.loads()
        loads = {name: count for name, count in self.mailbox.context.loads.open.items() if count}
        assert loads == stored, f"loads {loads} differ from those of the store, {stored}"

    async def check(self) -> None:
        """The laws that hold at every instant, asked of plain SQL."""
        holds, sums = await self.mailbox.messages.conservation()
        assert holds, f"conservation law broken: {sums}"
        real = dict(await self.sql("SELECT agent_id || state, COUNT(*) FROM messages GROUP BY 1"))
        kept = dict(
            await self.sql(
                "SELECT agent_id || state, count FROM counts WHERE state <> 'accepted' AND count"
            )
        )
        assert real == kept, f"counts {kept} differ from rows {real}"
        await self.check_loads()
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
