"""The mailbox against a plain model: any moves in any order, with crashes and new boots.

The model is lists and dictionaries; after every step the database must hold exactly what the model
holds, and the laws (conservation, one holder per session, rising fences, one completion) must hold.
The wall is stepped meanwhile: what is stored keeps to time that passes.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from agentsup.mailbox.lifecycle.deadlines import LONGEST_MS, LONGEST_PAUSE_MS
from agentsup.mailbox.messages.steady_clock import SETTLE_S
from agentsup.mailbox.messages.values import MailboxLimits
from agentsup.model.errors import AgentsupError, Conflict, IllegalTransition, LeaseLost, Overloaded
from agentsup.model.message import IN_STORE, LaneName, Lease, Priority
from agentsup.model.principal import OPERATOR
from tests.support.mailbox_fixture import BOB, MailboxFixture
from tests.support.simloop import VirtualLoop

T = TypeVar("T")
LIMIT = 8
OPEN = ("queued", "leased", "parked")


@dataclass(slots=True)
class Entry:
    """What the model knows of a message."""

    message_id: str
    agent: str
    session: str
    priority: int
    lane: LaneName
    accepted_at: int
    expires_at: int | None
    order: int
    state: str = "queued"
    fence: int = 0
    attempts: int = 0
    crashes: int = 0
    not_before: int = 0
    boot: int = 0
    instance: str = ""
    lease_until: int = 0
    completions: int = 0
    question_id: str = ""


@dataclass(slots=True)
class Model:
    """All messages, in order of acceptance, and the stops so far."""

    entries: list[Entry] = field(default_factory=list)
    epochs: dict[str, int] = field(default_factory=dict)
    boot: int = 1
    step: int = 0
    """By how much the wall was stepped since the deadlines followed it (ms)."""
    earlier: int = 0
    """How many entries are timed by the clock of an earlier boot."""

    def restart(self) -> None:
        self.boot += 1
        self.step, self.earlier = 0, len(self.entries)

    def follow(self) -> None:
        """Deadlines and pauses go with the wall, but those of earlier boots."""
        for entry in self.entries:
            is_own = entry.order >= self.earlier
            if entry.expires_at is not None and is_own and entry.state in OPEN:
                entry.expires_at += self.step
            if entry.not_before and (is_own or entry.boot == self.boot) and entry.state in OPEN:
                entry.not_before = max(1, entry.not_before + self.step)
        self.step = 0

    def settle(self, now: int) -> None:
        """The wall decides about earlier boots; nothing lies further ahead than it can."""
        for entry in self.entries[: self.earlier]:
            if entry.expires_at is not None and entry.state in OPEN:
                lives = entry.expires_at - entry.accepted_at
                lives = min(lives, LONGEST_MS) if lives > 0 else LONGEST_MS
                entry.expires_at = min(entry.expires_at, now + lives)
        for entry in self.entries:
            is_beyond = entry.not_before > now + LONGEST_PAUSE_MS
            if is_beyond and entry.fence and entry.state in OPEN:
                entry.not_before = now
        self.earlier = 0

    def is_late(self, entry: Entry, now: int) -> bool:
        """Whether a queued entry is past its time."""
        return entry.expires_at is not None and entry.expires_at <= now - self.step

    def open_of(self, agent: str) -> list[Entry]:
        return [e for e in self.entries if e.agent == agent and e.state in OPEN]

    def is_held(self, entry: Entry, lease: Lease) -> bool:
        return entry.state == "leased" and entry.fence == lease.fence and entry.boot == self.boot

    def claim(self, agent: str, instance: str, free: dict[LaneName, int], now: int) -> list[Entry]:
        """What a claim must return; ends what it must end."""
        sessions: dict[str, list[Entry]] = {}
        for entry in self.open_of(agent):
            sessions.setdefault(entry.session, []).append(entry)
        heads = []
        for rows in sessions.values():
            holders = [e for e in rows if e.state != "queued"]
            head = holders[0] if holders else rows[0]
            if head.state == "parked":
                continue
            if head.state == "queued" and (
                head.not_before > now - self.step
                or (head.order < self.earlier and self.is_late(head, now))
            ):
                continue
            if (
                head.state == "leased"
                and head.boot == self.boot
                and (head.lease_until >= now or head.instance == instance)
            ):
                continue
            level = min(max(0, e.priority - max(0, now - e.accepted_at) // 1_800_000) for e in rows)
            heads.append((level, head.order, head))
        looked_at = dict.fromkeys(LaneName, max(free.values()))
        chosen = []
        for _, _, head in sorted(heads):
            looked_at[head.lane] -= 1
            if looked_at[head.lane] < 0 or self.ends(head, now) or free[head.lane] == 0:
                continue
            free[head.lane] -= 1
            chosen.append(head)
            head.state, head.boot, head.instance = "leased", self.boot, instance
            head.fence += 1
            head.attempts += 1
            head.lease_until = now + 30_000
        return chosen

    def ends(self, head: Entry, now: int) -> bool:
        """Whether a head that a claim looks at ends instead of starting."""
        if head.state == "leased":
            is_old = now - (head.lease_until - 30_000) > 15 * 60_000
            if head.attempts < 4 and not is_old:
                return False
            head.state = "dead"
            return True
        if not self.is_late(head, now):
            return False
        head.state = "done"
        return True


AGENTS = st.sampled_from(["ann", "ben"])
SESSIONS = st.sampled_from(["s1", "s2"])
INSTANCES = st.sampled_from(["i1", "i2"])


class MailboxMachine(RuleBasedStateMachine):
    """Rules are what callers may do; each is run on the mailbox and told to the model."""

    @initialize()
    def start(self) -> None:
        self.loop = VirtualLoop()
        self.home = tempfile.TemporaryDirectory()
        self.model = Model()
        self.settled_s = 0.0
        self.leases: list[Lease] = []
        self.keys: dict[str, tuple[str, ...]] = {}
        limits = MailboxLimits(queue_limit=LIMIT)
        self.rig = self.run(MailboxFixture.open(Path(self.home.name), limits=limits))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def refused(self, error: type[AgentsupError], work: Coroutine[Any, Any, Any]) -> None:
        try:
            self.run(work)
        except error:
            return
        raise AssertionError(f"{error.__name__} was expected")

    @property
    def now(self) -> int:
        async def read() -> int:
            return self.rig.clock.now_ms()

        return self.run(read())

    def entry_of(self, lease: Lease) -> Entry:
        wanted = lease.message.message_id
        return next(e for e in self.model.entries if e.message_id == wanted)

    def with_lease(
        self, data: st.DataObject, act: Callable[[Lease], Coroutine[Any, Any, Any]]
    ) -> Entry | None:
        """Act on a lease of any age; the model says if it must be refused."""
        lease = data.draw(st.sampled_from(self.leases))
        entry = self.entry_of(lease)
        if not self.model.is_held(entry, lease):
            self.refused(LeaseLost, act(lease))
            return None
        self.run(act(lease))
        return entry

    # -- in and out --------------------------------------------------------------------------------

    @rule(
        agent=AGENTS,
        session=SESSIONS,
        priority=st.sampled_from(Priority),
        lane=st.sampled_from(LaneName),
        key=st.sampled_from(["", "", "k1", "k2"]),
        lives_s=st.sampled_from([None, None, 5, 3600]),
    )
    def accept(
        self,
        agent: str,
        session: str,
        priority: Priority,
        lane: LaneName,
        key: str,
        lives_s: int | None,
    ) -> None:
        now = self.now
        expires_at = None if lives_s is None else now + lives_s * 1000
        work = self.rig.put(
            agent=agent,
            session_key=session,
            priority=priority,
            lane=lane,
            idempotency_key=key,
            expires_at=expires_at,
            deliver_to=IN_STORE,
            silent=True,
        )
        body = (agent, session, priority.name)
        if key in self.keys:
            known_id, *known_body = self.keys[key]
            if tuple(known_body) != body:
                self.refused(Conflict, work)
                return
            accepted = self.run(work)
            assert (accepted.duplicate, accepted.message_id) == (True, known_id)
            return
        if len(self.model.open_of(agent)) >= LIMIT:
            self.refused(Overloaded, work)
            return
        accepted = self.run(work)
        if key:
            self.keys[key] = (str(accepted.message_id), *body)
        self.model.entries.append(
            Entry(
                accepted.message_id,
                agent,
                session,
                int(priority),
                lane,
                now,
                None if expires_at is None else expires_at - self.model.step,
                order=len(self.model.entries),
            )
        )

    @rule(agent=AGENTS, instance=INSTANCES, slots=st.tuples(*[st.integers(0, 2)] * 3))
    def claim(self, agent: str, instance: str, slots: tuple[int, int, int]) -> None:
        free = dict(zip(LaneName, slots, strict=True))
        leases = self.run(self.rig.mailbox.claim(agent, instance, dict(free))).leases
        expected = self.model.claim(agent, instance, free, self.now)
        got = [(x.message.message_id, x.fence, x.resumed) for x in leases]
        assert got == [(e.message_id, e.fence, e.fence > 1) for e in expected]
        self.leases += leases

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        entry = self.with_lease(data, self.rig.finish)
        if entry is not None:
            entry.state = "done"
            entry.completions += 1

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        now = self.now
        entry = self.with_lease(
            data, lambda lease: self.rig.mailbox.retry(lease, code="net", text="x")
        )
        if entry is None:
            return
        if entry.attempts >= 4:
            entry.state = "dead"
            return
        entry.state = "queued"
        ((entry.not_before,),) = self.run(
            self.rig.sql("SELECT not_before FROM messages WHERE message_id = ?", entry.message_id)
        )
        plain_ms = 1000 * 2**entry.attempts
        pause_ms = entry.not_before - (now - self.model.step)
        assert plain_ms * 0.5 - 1 <= pause_ms <= plain_ms * 1.5 + 1

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        entry = self.with_lease(data, self.rig.mailbox.release)
        if entry is not None:
            entry.state, entry.not_before = "queued", 0
            entry.attempts -= 1

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), timeout_s=st.sampled_from([None, 60.0]))
    def park(self, data: st.DataObject, timeout_s: float | None) -> None:
        entry = self.with_lease(data, lambda lease: self.rig.park(lease, timeout_s=timeout_s))
        if entry is not None:
            entry.state = "parked"
            entry.attempts -= 1
            question = self.run(self.rig.mailbox.questions())[-1]
            assert question.message_id == entry.message_id
            entry.question_id = question.question_id

    @precondition(lambda self: any(e.question_id for e in self.model.entries))
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        asked = [e for e in self.model.entries if e.question_id]
        entry = data.draw(st.sampled_from(asked))
        question = self.run(self.rig.mailbox.question(entry.question_id))
        own = self.now - self.model.step
        late = question.deadline_at is not None and question.deadline_at <= own
        work = self.rig.mailbox.answer(entry.question_id, "yes", BOB)
        if entry.state != "parked" or late:
            self.refused(Conflict, work)
        else:
            self.run(work)
            entry.state = "queued"

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(self.leases))
        entry = self.entry_of(lease)
        lost = self.run(self.rig.mailbox.renew([lease]))
        is_settled = entry.state not in ("leased", "cancelled")
        is_own = entry.fence == lease.fence and entry.boot == self.model.boot
        held = self.model.is_held(entry, lease)
        assert bool(lost) != (held or (is_own and is_settled))
        if held:
            entry.lease_until = self.now + 30_000

    # -- trouble -----------------------------------------------------------------------------------

    @rule(instance=INSTANCES)
    def stack_crashes(self, instance: str) -> None:
        hit = [
            e
            for e in self.model.entries
            if e.state == "leased" and e.instance == instance and e.boot == self.model.boot
        ]
        assert self.run(self.rig.mailbox.release_all(instance, culprits=None, text="boom")) == [
            e.message_id for e in hit
        ]
        for entry in hit:
            entry.crashes += 1
            entry.not_before = 0
            entry.state = "dead" if entry.crashes >= 2 or entry.attempts >= 4 else "queued"

    @rule()
    def daemon_restarts(self) -> None:
        self.run(self.rig.reboot())
        self.model.restart()
        self.settled_s = self.rig.clock.monotonic() + SETTLE_S

    @rule(by_h=st.sampled_from([1, -1, 400 * 24, -400 * 24]))
    def the_clock_is_stepped(self, by_h: int) -> None:
        self.rig.clock.jump_ms(by_h * 3_600_000)
        self.model.step += by_h * 3_600_000

    @rule(seconds=st.sampled_from([1, 10, 61, 20 * 60, 40 * 60]))
    def time_passes(self, seconds: int) -> None:
        self.rig.later(seconds)

    @rule()
    def deadlines_are_looked_at(self) -> None:
        now = self.now
        closed = self.run(self.rig.mailbox.expire())
        self.model.follow()
        if self.rig.clock.monotonic() >= self.settled_s:
            self.model.settle(now)
        for entry in self.model.entries:
            if entry.question_id in closed.question_ids and entry.state == "parked":
                entry.state = "queued"
        due = {
            e.message_id
            for e in self.model.entries
            if e.state == "queued" and e.order >= self.model.earlier and self.model.is_late(e, now)
        }
        assert set(closed.message_ids) == due
        for entry in self.model.entries:
            if entry.message_id in due:
                entry.state = "done"

    # -- people ------------------------------------------------------------------------------------

    @rule(scope=st.sampled_from(["all", "agent:ann", "session"]), session=SESSIONS)
    def stop(self, scope: str, session: str) -> None:
        if scope == "session":
            session_id = self.run(self.rig.mailbox.current_session("ann", session))
            scope = f"session:{session_id or 'ses_none'}"
            hit = [e for e in self.model.open_of("ann") if e.session == session]
        else:
            agents = ("ann", "ben") if scope == "all" else ("ann",)
            hit = [e for agent in agents for e in self.model.open_of(agent)]
        counts = self.run(self.rig.mailbox.stop(scope, BOB))
        states = [e.state for e in hit]
        assert (counts.queued, counts.running, counts.parked) == tuple(map(states.count, OPEN))
        self.model.epochs[scope] = self.model.epochs.get(scope, 0) + 1
        assert counts.epoch == self.model.epochs[scope]
        for entry in hit:
            entry.state = "cancelled"

    @precondition(lambda self: self.model.entries)
    @rule(data=st.data(), move=st.sampled_from(["cancel", "requeue", "drop", "replay"]))
    def someone_acts_on_a_message(self, data: st.DataObject, move: str) -> None:
        entry = data.draw(st.sampled_from(self.model.entries))
        work = getattr(self.rig.mailbox, move)(entry.message_id, OPERATOR)
        is_open = entry.state in OPEN
        if move == "cancel" and not is_open:
            self.refused(IllegalTransition, work)
        elif (move in ("requeue", "drop") and entry.state != "dead") or (
            move == "replay" and is_open
        ):
            self.refused(Conflict, work)
        elif move == "replay" and len(self.model.open_of(entry.agent)) >= LIMIT:
            self.refused(Overloaded, work)
        elif move == "replay":
            accepted = self.run(work)
            self.model.entries.append(
                Entry(
                    accepted.message_id,
                    entry.agent,
                    entry.session,
                    entry.priority,
                    entry.lane,
                    self.now,
                    None,
                    order=len(self.model.entries),
                )
            )
        else:
            self.run(work)
            if move == "requeue":
                entry.state, entry.not_before, entry.expires_at = "queued", 0, None
                entry.attempts = entry.crashes = 0
            else:
                entry.state = "cancelled"

    # -- laws --------------------------------------------------------------------------------------

    @invariant()
    def the_database_holds_what_the_model_holds(self) -> None:
        if not hasattr(self, "rig"):
            return
        rows = self.run(
            self.rig.sql(
                "SELECT message_id, state, fence, attempts, crashes, not_before,"
                " expires_at FROM messages ORDER BY seq"
            )
        )
        assert rows == [
            (e.message_id, e.state, e.fence, e.attempts, e.crashes, e.not_before, e.expires_at)
            for e in self.model.entries
        ]
        assert all(e.completions <= 1 for e in self.model.entries)
        self.run(self.rig.check())

    def teardown(self) -> None:
        if hasattr(self, "rig"):
            self.run(self.rig.close())
            self.loop.close()
            self.home.cleanup()
            asyncio.set_event_loop(None)


TestMailboxMachine = pytest.mark.timeout(180)(MailboxMachine.TestCase)
TestMailboxMachine.settings = settings(stateful_step_count=40)
