"""No move of the mailbox walks history: every statement it runs is looked up by an index."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from agentsup.mailbox.mail import AgentMailbox
from agentsup.model.message import IN_STORE
from agentsup.model.principal import OPERATOR
from agentsup.store import Reader, Tx
from tests.support.mailbox_fixture import BOB, MailboxFixture

BOUNDED = (
    "SCAN messages USING INDEX messages_open",
    "SCAN m USING INDEX messages_open",
    "SCAN questions USING INDEX questions_open",
    "SCAN messages USING INDEX messages_dead",
    "SCAN outbox USING INDEX outbox_pending",
)
"""Walks over open rows, which the queue limits bound, over the newest dead letters, and, at a start and
where the clock was stepped, over what is still to be delivered."""


def plan_of(sql: str, params: Any, reader: Reader) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in reader.all("EXPLAIN QUERY PLAN " + sql, params)]


async def every_move(rig: MailboxFixture) -> None:
    """What a daemon does all day, once."""
    root = await rig.put(source="s", external_id="1", idempotency_key="k")
    await rig.mailbox.leases.retry(await rig.one(), code="net", text="x")
    rig.later(60)
    lease = await rig.one()
    await rig.mailbox.leases.renew([lease])
    ben = await rig.put(agent="ben", root_id=root.message_id, deliver_to=IN_STORE)
    await rig.wait_for(lease, ben.message_id)
    question = await rig.park(lease)
    await rig.mailbox.questions.list()
    await rig.mailbox.questions.answer(question.question_id, "yes", BOB)
    await rig.mailbox.leases.release(await rig.one())
    await rig.mailbox.messages.position(root.message_id)
    await rig.finish(await rig.one())
    await rig.mailbox.deadlines.next()
    await rig.mailbox.deadlines.expire()
    await rig.one("ben")
    await rig.mailbox.leases.release_all("i1", culprits=None, text="boom")
    await rig.mailbox.control.interrupt(ben.session_id, BOB)
    await rig.mailbox.messages.thread(root.message_id)
    await rig.mailbox.messages.counts()
    for scope in ("all", "agent:ann", f"session:{root.session_id}"):
        await rig.put()
        await rig.mailbox.control.stop(scope, OPERATOR)
    await rig.mailbox.messages.list(agent_id="ann", limit=5)
    await rig.mailbox.messages.list(session_id=root.session_id, limit=5)
    await rig.mailbox.failed.list()
    history = AgentMailbox(rig.db, rig.mailbox.context)
    await history.history("ann", limit=5)
    await history.history("ann", unread_only=True)
    await history.mark_all_read("ann")
    await history.unread_counts()
    await rig.put()
    await rig.mailbox.leases.retry(await rig.one(), code="net", text="x")
    await rig.put(agent="cid", expires_at=rig.clock.now_ms() + 1)
    await rig.reboot()
    rig.clock.jump_ms(3_600_000)
    await rig.mailbox.deadlines.expire()
    rig.later(61)
    await rig.mailbox.deadlines.expire()


async def test_no_statement_scans_the_history(
    rig: MailboxFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, Any] = {}
    for kind in (Reader, Tx):
        plain = kind.execute

        def record(self: Any, sql: str, params: Any = (), plain: Any = plain) -> Any:
            seen.setdefault(sql, params)
            return plain(self, sql, params)

        monkeypatch.setattr(kind, "execute", record)
    await every_move(rig)
    monkeypatch.undo()
    walks = []
    for sql, params in seen.items():
        for *_, step in await rig.db.read(partial(plan_of, sql, params)):
            tables = ("messages", "m", "outbox", "events", "ledger", "questions", "sessions")
            is_walk = any(step == f"SCAN {t}" or step.startswith(f"SCAN {t} ") for t in tables)
            is_walk |= (
                "INTEGER PRIMARY KEY (rowid>" in step or "INTEGER PRIMARY KEY (rowid<" in step
            )
            if is_walk and not step.startswith(BOUNDED):
                walks.append((step, " ".join(sql.split())))
    assert len(seen) > 40
    assert walks == []


async def test_a_claim_reads_open_rows_from_their_index_alone(
    rig: MailboxFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which sessions are held is found without a row of any message; what is set aside by its
    number."""
    seen: dict[str, Any] = {}
    plain = Tx.execute

    def record(self: Tx, sql: str, params: Any = ()) -> Any:
        seen.setdefault(sql, params)
        return plain(self, sql, params)

    monkeypatch.setattr(Tx, "execute", record)
    await rig.put()
    await rig.one()
    monkeypatch.undo()
    ((sql, params),) = [each for each in seen.items() if "set_aside" in each[0]]
    steps = [step for *_, step in await rig.db.read(partial(plan_of, sql, params))]
    assert "SEARCH messages USING COVERING INDEX messages_open (agent_id=?)" in steps
    assert "USING ROWID SEARCH ON TABLE set_aside FOR IN-OPERATOR" in steps
