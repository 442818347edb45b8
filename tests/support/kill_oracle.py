"""The judge of the kill matrix: the clients' record, the effect files and plain SQL.

It reads a copy of the database as the kill left it, so that looking changes nothing, and uses none
of agentsup's own code.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.support.kill_traffic import Record

STATES: Final = ("queued", "leased", "parked", "done", "dead", "cancelled")
MAX_ATTEMPTS: Final = 4


@contextlib.contextmanager
def copy_of(home: Path) -> Iterator[sqlite3.Connection]:
    """The store as a kill left it; looking changes nothing."""
    with tempfile.TemporaryDirectory() as place:
        for name in ("state.db", "state.db-wal"):
            if (home / name).exists():
                shutil.copy(home / name, place)
        with contextlib.closing(sqlite3.connect(f"{place}/state.db")) as connection:
            connection.row_factory = sqlite3.Row
            yield connection


def all_rows(connection: sqlite3.Connection, query: str, *parameters: Any) -> list[sqlite3.Row]:
    """The rows of a query."""
    return connection.execute(query, parameters).fetchall()


def none_of(connection: sqlite3.Connection, what: str, query: str, *parameters: Any) -> None:
    """Raise ``AssertionError`` with ``what`` the rows of a query would mean, if there are any."""
    found = [dict(row) for row in all_rows(connection, query, *parameters)]
    assert not found, f"{what}: {found[:5]} ({len(found)} in all)"


def effects_in(home: Path) -> Counter[str]:
    """How often each message had its effect, by the files in the workspaces."""
    lines: Counter[str] = Counter()
    for path in home.glob("agents/*/workspace/effects.txt"):
        lines.update(path.read_text().split())
    return lines


def check_after_kill(home: Path, record: Record) -> None:
    """What must hold at every instant, so also in what a kill left behind."""
    with copy_of(home) as sql:
        found = all_rows(sql, "PRAGMA quick_check")
        assert found[0][0] == "ok", [row[0] for row in found]
        check_conservation(sql)
        _once(sql, home, record)
        _kept(sql, record)


def check_at_the_end(home: Path, record: Record) -> None:
    """What must hold once everything was given its time."""
    with copy_of(home) as sql:
        assert all_rows(sql, "PRAGMA integrity_check")[0][0] == "ok"
        check_conservation(sql)
        _once(sql, home, record)
        _kept(sql, record)
        _settled(sql, record)
        _answered(sql, record)
        _worked(sql, home, record)
        _stopped(sql, record)


def check_conservation(sql: sqlite3.Connection) -> None:
    """accepted = the rows of each state and what was pruned, per agent; the counts are true."""
    counts: dict[str, dict[str, int]] = {}
    for row in all_rows(sql, "SELECT agent_id, state, count FROM counts"):
        counts.setdefault(row["agent_id"], {})[row["state"]] = row["count"]
    for agent_id, held in counts.items():
        pruned = all_rows(sql, "SELECT total(count) n FROM totals WHERE agent_id = ?", agent_id)[0][
            "n"
        ]
        rows = {
            row["state"]: row["n"]
            for row in all_rows(
                sql,
                "SELECT state, count(*) n FROM messages WHERE agent_id = ? GROUP BY state",
                agent_id,
            )
        }
        assert held["accepted"] == sum(rows.values()) + pruned, (agent_id, held, rows, pruned)
        for state in STATES:
            assert held.get(state, 0) == rows.get(state, 0), (agent_id, state, held, rows)


def _once(sql: sqlite3.Connection, home: Path, record: Record) -> None:
    """No input twice, no turn completed twice, no effect twice that nobody asked to repeat."""
    none_of(
        sql,
        "one input became two messages",
        "SELECT source, external_id FROM ledger GROUP BY message_id HAVING count(*) > 1",
    )
    none_of(
        sql,
        "a turn was completed twice",
        "SELECT message_id, role, count(*) n FROM transcript GROUP BY 1, 2 HAVING n > 1",
    )
    none_of(
        sql,
        "an end was told twice",
        "SELECT message_id, count(*) n FROM events WHERE type IN"
        " ('message.done', 'message.dead', 'message.cancelled') GROUP BY 1 HAVING n > 1",
    )
    none_of(
        sql,
        "an answer went out twice",
        "SELECT message_id, kind, part_no, count(*) n FROM outbox WHERE kind = 'answer'"
        " GROUP BY 1, 2, 3 HAVING n > 1",
    )
    none_of(
        sql,
        "a part was shown twice",
        "SELECT data ->> 'outbox_id' part, count(*) n FROM events WHERE type = 'chat.out'"
        " AND part IS NOT NULL GROUP BY part HAVING n > 1",
    )
    for message_id, lines in effects_in(home).items():
        allowed = 1 + record.again.get(message_id, 0)
        assert lines <= allowed, f"{message_id} had its effect {lines} times, allowed {allowed}"
    for message_id, seen in record.answers_seen.items():
        assert len(seen) == 1, f"the client saw the answer of {message_id} twice: {seen}"


def _kept(sql: sqlite3.Connection, record: Record) -> None:
    """What was confirmed is there, under the id that was told, and an end that was seen stands."""
    rows = {
        row["message_id"]: row
        for row in all_rows(sql, "SELECT message_id, state, outcome FROM messages")
    }
    for item in record.items:
        assert len(set(item.ids_given)) <= 1, f"one key, two ids: {item}"
        if not item.message_id:
            continue
        assert item.message_id in rows, f"confirmed and lost: {item}"
        row = rows[item.message_id]
        if item.terminal in {"ok", "failed"}:
            assert (row["state"], row["outcome"]) == ("done", item.terminal), (item, dict(row))
        elif item.terminal:
            assert row["state"] == item.terminal, (item, dict(row))


def _settled(sql: sqlite3.Connection, record: Record) -> None:
    none_of(
        sql,
        "not at an end",
        "SELECT message_id, agent_id, state, attempts, error_text FROM messages"
        " WHERE state NOT IN ('done', 'dead', 'cancelled')",
    )
    none_of(
        sql,
        "an end without its time or outcome",
        "SELECT message_id FROM messages WHERE finished_at IS NULL"
        " OR (state = 'done') <> (outcome IS NOT NULL)",
    )
    none_of(
        sql,
        "not delivered",
        "SELECT * FROM outbox WHERE state NOT IN ('delivered', 'dropped')"
        " AND (state <> 'unknown' OR channel <> 'telegram')",  # those have a judge of their own
    )
    none_of(sql, "a wait for nothing", "SELECT * FROM waits")
    none_of(sql, "a question for nothing", "SELECT * FROM questions WHERE state = 'open'")
    none_of(
        sql,
        "dead without having been tried enough",
        "SELECT message_id, attempts, crashes, error_text FROM messages WHERE state = 'dead'"
        f" AND attempts < {MAX_ATTEMPTS}",
    )
    for row in all_rows(
        sql, "SELECT message_id, error_text FROM messages WHERE outcome = 'failed'"
    ):
        assert row["message_id"] in record.left_out, f"failed without a reason: {dict(row)}"


def _answered(sql: sqlite3.Connection, record: Record) -> None:
    """Every item has one end, and its answer came back to where it was asked."""
    bad_ends = "SELECT message_id FROM messages WHERE state = 'dead' OR outcome = 'failed'"
    ended_badly = {row["message_id"] for row in all_rows(sql, bad_ends)}
    troubled = {
        row["root_id"] for row in all_rows(sql, bad_ends.replace("message_id", "root_id", 1))
    }
    delivered: dict[str, list[str]] = {}
    for row in all_rows(
        sql,
        "SELECT message_id, conversation, json_extract(data, '$.text') text FROM events"
        " WHERE type = 'chat.out' AND json_extract(data, '$.kind') IN ('answer', 'notice')",
    ):
        delivered.setdefault(row["message_id"], []).append(row["text"])
    for item in record.items:
        assert item.message_id, f"never confirmed, though everything had its time: {item}"
        assert item.terminal, f"the client never learnt the end of {item}"
        if item.terminal != "ok":
            assert item.message_id in ended_badly, item
            if item.by in {"chat", "web"}:
                assert delivered.get(item.message_id), f"ended badly without a word: {item}"
            continue
        if item.kind not in {"ask", "chain"} or item.message_id not in troubled:
            assert item.answer == item.expected(), item
        if item.by in {"chat", "web"}:
            seen = record.answers_seen[item.message_id]
            assert list(seen.values()) == [item.answer], (item, seen)


def _children(sql: sqlite3.Connection) -> dict[str, dict[str, str]]:
    """By message, what was asked or answered in reply to it: ids with their kinds."""
    children: dict[str, dict[str, str]] = {}
    for row in all_rows(
        sql, "SELECT in_reply_to, message_id, kind FROM messages WHERE in_reply_to <> ''"
    ):
        children.setdefault(row["in_reply_to"], {})[row["message_id"]] = row["kind"]
    return children


def _worked(sql: sqlite3.Connection, home: Path, record: Record) -> None:
    """Calls between agents happened once, and what had an effect had it."""
    effects = effects_in(home)
    ends = {
        row["message_id"]: row["state"]
        for row in all_rows(sql, "SELECT message_id, state FROM messages")
    }
    children = _children(sql)
    for item in record.items:
        if item.terminal != "ok":
            continue
        if item.kind in {"ask", "relay"}:
            asked = children.get(item.message_id, {})
            assert len(asked) == 1, f"{item} asked {len(asked)} times"
            (child,) = asked
            if item.kind == "ask" and ends[child] == "done" and child not in record.asked_about:
                assert effects[child] == 1, (
                    f"{child} of {item} had its effect {effects[child]} times"
                )
            if item.kind == "relay" and ends[child] == "done":
                replies = children.get(child, {})
                assert [*replies.values()] == ["reply"], (item, replies)
        elif item.kind in {"effect", "question"} and item.message_id not in record.asked_about:
            assert effects[item.message_id] == 1, f"{item}: {effects[item.message_id]} effects"


def _stopped(sql: sqlite3.Connection, record: Record) -> None:
    """What was confirmed before a stop had ended when the stop was confirmed, and stayed so."""
    ends = {
        row["message_id"]: row
        for row in all_rows(sql, "SELECT message_id, state, finished_at FROM messages")
    }
    for at_ms, message_ids in record.stops:
        for message_id in message_ids:
            row = ends[message_id]
            assert row["finished_at"] <= at_ms, f"{dict(row)} ended after the stop at {at_ms}"
