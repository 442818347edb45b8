"""A store of before persons were recorded: what can be known is, and nothing is shared by it."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from agentsup.agents.memory import AgentMemory, MemoryOwner, MemoryScope, rows
from agentsup.agents.memory.ranking import words
from agentsup.kit.clock import SystemClock
from agentsup.kit.entropy import SystemEntropy
from agentsup.mailbox.delivery.notices import latest_conversation
from agentsup.mailbox.messages import key_owner, unchanged
from agentsup.model.principal import OPERATOR, Principal, PrincipalKind
from agentsup.store import Database, StoreOptions
from agentsup.store.migrate import migrate, packaged
from agentsup.tasks.listing import list_tasks

ANNA = {"kind": "person", "subject": "anna", "role": 1}
BEN = {"kind": "person", "subject": "ben", "role": 1}
OLGA = {"kind": "person", "subject": "olga", "role": 2}
ADA = {"kind": "agent", "subject": "agt_ada", "name": "ada"}


def insert(connection: sqlite3.Connection, table: str, **row: Any) -> None:
    marks = ", ".join("?" * len(row))
    connection.execute(
        f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})",
        tuple(row.values()),
    )


def message(connection: sqlite3.Connection, name: str, by: Any, **more: Any) -> None:
    row = {
        "message_id": name,
        "agent_id": "agt_ada",
        "session_id": "ses_1",
        "kind": "chat",
        "lane": "interactive",
        "priority": 2,
        "state": "done",
        "outcome": "ok",
        "parts": "[]",
        "principal": json.dumps(by),
        "deliver_to": "{}",
        "root_id": name,
        "accepted_at": 1,
    }
    insert(connection, "messages", **{**row, **more})


def chat(conversation: str) -> str:
    return json.dumps({"kind": "chat", "channel": "telegram", "conversation": conversation})


def task(connection: sqlite3.Connection, name: str, **more: Any) -> None:
    row = {
        "task_id": name,
        "name": "t",
        "owner": json.dumps(ADA),
        "owner_kind": "agent",
        "owner_id": "agt_ada",
        "agent_id": "agt_ada",
        "state": "done",
        "prompt": "p",
        "deliver_to": '{"kind": "none"}',
        "parent_message_id": "msg_pruned",
        "priority": 2,
        "created_at": 1,
    }
    insert(connection, "tasks", **{**row, **more})


def run(connection: sqlite3.Connection, run_id: str, task_id: str, **more: Any) -> None:
    """A time of a schedule: a message that is a root itself."""
    message(connection, run_id, ADA, kind="task", **more)
    row = {"run_no": 1, "kind": "slot", "agent_id": "agt_ada", "created_at": 1}
    insert(connection, "runs", run_id=run_id, task_id=task_id, **row)


def memory(connection: sqlite3.Connection, key: str, scope: str) -> None:
    insert(
        connection,
        "memories",
        memory_id=f"mem_{key}_{scope}",
        agent_id="agt_ada",
        scope=scope,
        kind="fact",
        key=key,
        content="the word",
        confidence=0.5,
        audience="a6167745f616461 k66616374" + (" g" if scope == "global" else ""),
        created_at=1,
        updated_at=1,
        touched_at=1,
    )


def old_store(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        migrate(db, [each for each in packaged() if each.version < 21], now_ms=lambda: 1)
        insert(db, "agents", agent_id="agt_ada", name="ada", created_at=1)
        insert(
            db,
            "sessions",
            session_id="ses_1",
            agent_id="agt_ada",
            key="k",
            created_at=1,
            updated_at=1,
        )
        message(db, "msg_anna", ANNA, deliver_to=chat("1"))
        message(db, "msg_olga", OLGA, deliver_to=chat("2"))
        message(db, "msg_both", OLGA, deliver_to=chat("-9"))
        message(db, "msg_both2", ANNA, deliver_to=chat("-9"))
        message(db, "msg_three", ANNA, deliver_to=chat("-8"))
        message(db, "msg_three2", BEN, deliver_to=chat("-8"))
        message(db, "msg_operator", {"kind": "operator", "subject": "operator", "role": 3})
        message(db, "msg_below", ADA, root_id="msg_anna", in_reply_to="msg_anna")
        message(db, "msg_orphan", ADA, root_id="msg_pruned")
        for conversation in ("1", "2", "-9", "-8", "silent"):
            insert(
                db,
                "conversations",
                agent_id="agt_ada",
                channel="telegram",
                conversation=conversation,
                first_at=1,
                last_at=1,
            )
        task(db, "task_1", asked_by="anna")
        run(db, "msg_slot", "task_1")
        message(db, "msg_of_slot", ADA, root_id="msg_slot")
        memory(db, "tea", "instance")
        memory(db, "tea", "global")
        memory(db, "procedure", "global")


async def test_persons_are_known_from_roots_and_memories_are_the_operators(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    old_store(path)
    clock = SystemClock()
    store = await Database.open(path, clock=clock, options=StoreOptions(reserve_bytes=0))
    try:
        found = dict(
            await store.read(
                lambda r: [tuple(x) for x in r.all("SELECT message_id, person FROM messages")]
            )
        )
        assert found == {
            "msg_anna": "person:anna",
            "msg_olga": "operator",
            "msg_both": "operator",
            "msg_both2": "person:anna",
            "msg_three": "person:anna",
            "msg_three2": "person:ben",
            "msg_operator": "operator",
            "msg_below": "person:anna",
            "msg_orphan": "operator",
            "msg_slot": "person:anna",
            "msg_of_slot": "person:anna",
        }
        places = await store.read(
            lambda r: [tuple(x) for x in r.all("SELECT conversation, person FROM conversations")]
        )
        assert dict(places) == {
            "1": "person:anna",
            "2": "operator",
            "-9": "person:anna",
            "-8": "*",
            "silent": "",
        }

        async def recalled(owner: MemoryOwner) -> list[str]:
            found = await store.read(lambda r: rows.search(r, owner, words("word"), now=2))
            return sorted(f"{entry.key} {entry.scope.value}" for entry in found)

        everything = ["procedure global", "tea global", "tea instance"]
        assert await recalled(MemoryOwner("agt_ada", person="operator")) == everything
        for other in (
            MemoryOwner("agt_ada", person="person:anna"),
            MemoryOwner("agt_ben", person="operator"),
        ):
            assert await recalled(other) == [], other
        book = AgentMemory(store, clock, SystemEntropy(clock))
        (entry,) = await book.under_key("agt_ada", "procedure")
        await book.share("agt_ada", entry.seen, MemoryScope.GLOBAL, OPERATOR)
        assert await recalled(MemoryOwner("agt_ben", person="person:anna")) == ["procedure global"]
        await store.write(
            lambda tx: tx.execute(
                "INSERT INTO memories_index (memories_index, rank) VALUES ('integrity-check', 1)"
            )
        )
    finally:
        await store.close()


async def test_work_without_its_root_is_the_operators_or_who_asked_for_it(tmp_path: Path) -> None:
    """Schedules outlive the messages by which they were begun."""
    path = tmp_path / "state.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        migrate(db, [each for each in packaged() if each.version < 21], now_ms=lambda: 1)
        insert(db, "agents", agent_id="agt_ada", name="ada", created_at=1)
        row = {"session_id": "ses_1", "agent_id": "agt_ada", "key": "k"}
        insert(db, "sessions", **row, created_at=1, updated_at=1)
        where = {"agent_id": "agt_ada", "channel": "telegram", "first_at": 1, "last_at": 1}
        for conversation in ("2", "3"):
            insert(db, "conversations", conversation=conversation, **where)
        message(db, "msg_olga", {**OLGA, "role": 1}, deliver_to=chat("2"))
        message(db, "msg_olga2", OLGA, deliver_to=chat("2"))  # an operator since
        message(db, "msg_eva", {**OLGA, "subject": "eva"}, deliver_to=chat("3"))
        message(db, "msg_eva2", {**OLGA, "subject": "eva", "role": 1}, deliver_to=chat("3"))
        message(db, "msg_hook", {"kind": "system", "subject": "agentsup"})
        task(db, "task_olga", asked_by="olga")
        run(db, "msg_slot", "task_olga")
        message(db, "msg_below", ADA, root_id="msg_slot")
        task(db, "task_anna", asked_by="anna")
        run(db, "msg_slot_anna", "task_anna")
        task(db, "task_console")
        task(db, "task_in_slot", parent_message_id="msg_slot_anna")
        run(db, "msg_slot_in_slot", "task_in_slot")
        task(db, "task_in_that", parent_message_id="msg_slot_in_slot")
        task(db, "task_hook", parent_message_id="msg_hook")
        run(db, "msg_run", "task_anna", root_id="msg_pruned2")
        message(db, "msg_sibling", ADA, root_id="msg_pruned2")
    store = await Database.open(path, clock=SystemClock(), options=StoreOptions(reserve_bytes=0))
    try:

        async def listed(person: str) -> list[str]:
            who = Principal(PrincipalKind.AGENT, "agt_ada", "ada", behalf=person)
            found = await store.read(lambda r: list_tasks(r, who))
            return sorted(each.task_id for each in found)

        assert await listed("operator") == ["task_console", "task_hook", "task_olga"]
        annas = ["task_anna", "task_hook", "task_in_slot", "task_in_that"]
        assert await listed("person:anna") == annas
        assert await listed("person:ben") == ["task_hook"]
        rows = await store.read(
            lambda r: r.all("SELECT message_id, person, principal ->> '$.behalf' FROM messages")
        )
        found = {row[0]: (row[1], row[2]) for row in rows}
        assert found["msg_slot"] == ("operator", "operator")
        assert found["msg_below"][0] == "operator"
        assert found["msg_slot_in_slot"] == ("person:anna", "person:anna")
        assert found["msg_run"] == ("person:anna", "person:anna")
        assert found["msg_sibling"][0] == "person:anna"
        assert found["msg_hook"][0] == ""
        last = await store.read(
            lambda r: [
                latest_conversation(r, "agt_ada", who, unchanged)
                for who in ("operator", "person:eva")
            ]
        )
        assert last == [("telegram", "2"), ("telegram", "3")]
    finally:
        await store.close()


def test_keys_of_before_stay_those_of_their_person(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "state.db", isolation_level=None)) as db:
        migrate(db, packaged()[:23], now_ms=lambda: 1)
        row = {"session_id": "ses_1", "agent_id": "agt_ada", "key": "k"}
        insert(db, "sessions", **row, created_at=1, updated_at=1)
        message(db, "msg_anna", ADA, person="person:anna")
        message(db, "msg_olga", ADA, person="operator")
        message(db, "msg_copy", ADA, person="person:ben", kind="broadcast", thread_id="bc_1")
        message(db, "msg_hook", ADA)
        task(db, "task_1", owner=json.dumps({**ADA, "behalf": "person:anna"}))
        entries = {
            "key:agent:agt_ada": ("msg_anna", "msg_olga", "msg_hook", "msg_pruned"),
            "key:person:anna": ("msg_anna",),
            "assign:agent:agt_ada": ("msg_anna",),
            "broadcast:agent:agt_ada": ("bc_1",),
            "task:agent:agt_ada": ("task_1",),
            "telegram:agt_ada": ("msg_anna",),
        }
        for source, ids in entries.items():
            for subject in ids:
                insert(db, "ledger", source=source, external_id=subject, message_id=subject, at=1)
        assert migrate(db, packaged()[:24], now_ms=lambda: 2) == 1
        found = db.execute("SELECT external_id, source FROM ledger ORDER BY 2, 1").fetchall()
    assert found == [
        ("msg_anna", "assign:agent:agt_ada:person:anna"),
        ("bc_1", "broadcast:agent:agt_ada:person:ben"),
        ("msg_hook", "key:agent:agt_ada:nobody"),
        ("msg_olga", "key:agent:agt_ada:operator"),
        ("msg_pruned", "key:agent:agt_ada:operator"),
        ("msg_anna", "key:agent:agt_ada:person:anna"),
        ("msg_anna", "key:person:anna"),
        ("task_1", "task:agent:agt_ada:person:anna"),
        ("msg_anna", "telegram:agt_ada"),
    ]
    anna = Principal(PrincipalKind.AGENT, "agt_ada", behalf="person:anna")
    hook = Principal(PrincipalKind.AGENT, "agt_ada")
    assert key_owner("key", anna) == "key:agent:agt_ada:person:anna"
    assert key_owner("key", hook, "") == "key:agent:agt_ada:nobody"
