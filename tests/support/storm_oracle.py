"""The judge of the storm: what those outside know, the effect files, and plain SQL.

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

from tests.support.storm_record import Record

MARGIN_MS: Final = 20_000
"""How much later an end may come on a slow machine."""
STATES: Final = ("queued", "leased", "parked", "done", "dead", "cancelled")
MAX_ATTEMPTS: Final = 4
SETTLE_MS: Final = 1000
"""For so long the clock may be set after a start, in a storm."""

AT_EVERY_INSTANT: Final = {
    "a task is not where its run is": "SELECT t.task_id, t.state, m.state FROM tasks t"
    " LEFT JOIN messages m ON m.message_id = t.current_run WHERE t.current_run <> ''"
    " AND t.state IS NOT CASE m.state"
    " WHEN 'queued' THEN iif(m.started_at IS NULL, 'queued', 'running')"
    " WHEN 'leased' THEN iif(EXISTS (SELECT 1 FROM questions q WHERE q.message_id = m.message_id"
    " AND q.state = 'open'), 'waiting', 'running') WHEN 'parked' THEN 'waiting'"
    " WHEN 'done' THEN iif(m.outcome = 'ok', 'done', 'failed') WHEN 'dead' THEN 'failed'"
    " WHEN 'cancelled' THEN 'cancelled' END",
    "a task's message without a run": "SELECT message_id FROM messages WHERE kind = 'task'"
    " AND message_id NOT IN (SELECT run_id FROM runs)",
    "a run without a message": "SELECT run_id FROM runs WHERE skip_reason IS NULL"
    " AND run_id NOT IN (SELECT message_id FROM messages)",
    "runs are miscounted": "SELECT t.task_id, t.runs FROM tasks t WHERE t.runs <>"
    " (SELECT count(*) FROM runs r WHERE r.task_id = t.task_id AND r.skip_reason IS NULL)",
    "a slot was decided twice": "SELECT task_id, slot_at FROM runs WHERE slot_at IS NOT NULL"
    " GROUP BY 1, 2 HAVING count(*) > 1",
    # A turn for which `ask_parent` was called is put down with what it has said, and comes again.
    "a turn was completed twice": "SELECT message_id, role FROM transcript t GROUP BY 1, 2"
    " HAVING count(*) > 1 + (SELECT count(*) FROM questions q"
    " WHERE q.message_id = t.message_id AND 'ask_parent' IN (q.call_id, q.kind))",
    "an end was told twice": "SELECT message_id FROM events WHERE type IN ('message.done',"
    " 'message.dead', 'message.cancelled') GROUP BY 1 HAVING count(*) > 1",
    "a result came back twice": "SELECT in_reply_to FROM messages WHERE kind = 'reply'"
    " GROUP BY 1 HAVING count(*) > 1",
    "an answer went out twice": "SELECT message_id, part_no FROM outbox WHERE kind = 'answer'"
    " GROUP BY 1, 2 HAVING count(*) > 1",
    "a part was shown twice": "SELECT data ->> 'outbox_id' part FROM events"
    " WHERE type = 'chat.out' AND part IS NOT NULL GROUP BY part HAVING count(*) > 1",
    "an agent is asked what is closed": "SELECT m.message_id FROM messages m JOIN questions q"
    " ON q.put_as = m.message_id WHERE m.state IN ('queued', 'parked')"
    " AND q.state <> 'open'",  # a turn that is at it is let finish
    "nobody is asked": "SELECT q.question_id FROM questions q JOIN messages m"
    " ON m.message_id = q.put_as WHERE q.state = 'open'"
    " AND m.state NOT IN ('queued', 'leased', 'parked')",
    "too deep": "SELECT run_id FROM runs WHERE depth > 3",
}
"""What must find no row whenever the daemon was killed, by what it would mean."""

AT_THE_END: Final = {
    "not at an end": "SELECT message_id, kind, state, attempts, error_text FROM messages"
    " WHERE state NOT IN ('done', 'dead', 'cancelled')",
    "an end without its time or outcome": "SELECT message_id FROM messages WHERE finished_at IS NULL"
    " OR (state = 'done') <> (outcome IS NOT NULL)",
    "an update was not handled": "SELECT * FROM received WHERE state <> 'done'"
    " AND skip_reason <> 'nothing_to_answer'",
    "a task is not at an end": "SELECT task_id, state FROM tasks"
    " WHERE state NOT IN ('done', 'failed', 'cancelled') OR finished_at IS NULL",
    "a schedule goes on": "SELECT task_id FROM schedules WHERE next_at IS NOT NULL",
    "a state that nobody was told of": "SELECT t.task_id, t.state, (SELECT e.data ->> 'state'"
    # The bounds are those of the index; without it each task reads all events.
    " FROM events e WHERE e.message_id = t.task_id AND e.type = 'task.changed'"
    " AND e.type >= 'task.' AND e.type < 'task/'"
    " ORDER BY e.seq DESC LIMIT 1) told FROM tasks t"
    " WHERE t.state NOT IN ('todo', 'queued') AND told IS NOT t.state",
    "not delivered": "SELECT outbox_id, kind FROM outbox"
    " WHERE state NOT IN ('delivered', 'dropped')"
    " AND (state <> 'unknown' OR channel <> 'telegram')",
    "an end was never told": "SELECT message_id FROM messages"
    " WHERE (message_id, 'message.' || state) NOT IN (SELECT message_id, type FROM events)",
    "a wait for nothing": "SELECT * FROM waits",
    "a question for nothing": "SELECT question_id FROM questions WHERE state = 'open'",
    "dead without having been tried enough": "SELECT message_id, attempts FROM messages"
    f" WHERE state = 'dead' AND attempts < {MAX_ATTEMPTS}",
}


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


def cut_off(sql: sqlite3.Connection, record: Record) -> None:
    """Note what a kill has cut off: turns, and parts on their way to a platform."""
    for row in all_rows(sql, "SELECT message_id, fence FROM messages WHERE state = 'leased'"):
        record.interrupted[row["message_id"]].add(row["fence"])
    begun = "SELECT outbox_id FROM outbox WHERE state = 'pending' AND begun_boot <> ''"
    record.begun.update(row["outbox_id"] for row in all_rows(sql, begun))


def check_after_kill(sql: sqlite3.Connection, home: Path, record: Record) -> None:
    """What must hold at every instant, so also in what a kill left behind."""
    check_conservation(sql)
    for meaning, query in AT_EVERY_INSTANT.items():
        none_of(sql, meaning, query)
    for message_id, lines in effects_in(home).items():
        allowed = 1 + record.again.get(message_id, 0)
        assert lines <= allowed, f"{message_id} had its effect {lines} times, allowed {allowed}"
    for message_id, seen in record.answers_seen.items():
        assert len(seen) == 1, f"the client saw the answer of {message_id} twice: {seen}"
    doubted = "SELECT outbox_id FROM outbox WHERE detail LIKE 'begun by %'"
    for row in all_rows(sql, doubted):
        assert row["outbox_id"] in record.begun, f"in doubt, but never begun: {dict(row)}"
    _kept(sql, record)


def check_at_the_end(
    sql: sqlite3.Connection, home: Path, record: Record, began_at: int
) -> Counter[str]:
    """What must hold once everything was given its time; ``began_at`` (wall ms) is when the last life
    began. What there was of each kind."""
    unheard = ended_in_time(sql, began_at)
    record.asked_about |= unheard
    record.left_out |= unheard
    check_after_kill(sql, home, record)
    for meaning, query in AT_THE_END.items():
        none_of(sql, meaning, query)
    failed = (
        "SELECT message_id, error_text FROM messages JOIN agents USING (agent_id)"
        " WHERE outcome = 'failed' AND name NOT IN ('mouth', 'hand')"  # their programs are killed
    )
    for row in all_rows(sql, failed):
        assert row["message_id"] in record.left_out, f"failed without a reason: {dict(row)}"
    _answered(sql, record)
    _worked(sql, home, record)
    _chains(sql, record)
    _stopped(sql, record)
    return Counter({"asked about, and nobody said": len(unheard)})


def ended_in_time(sql: sqlite3.Connection, began_at: int) -> set[str]:
    """The messages about whose lost call somebody was asked, and nobody said: failed, not early and
    not late."""
    asked = all_rows(
        sql,
        "SELECT m.message_id, m.state, m.outcome, m.error_code, m.finished_at, q.deadline_at,"
        " q.state AS asked FROM questions q JOIN messages m USING (message_id)"
        " WHERE q.kind = 'uncertain' AND q.state <> 'answered'",
    )
    for row in asked:
        told = (row["state"], row["outcome"], row["error_code"], row["asked"])
        if row["state"] in {"dead", "cancelled"}:
            continue
        assert told == ("done", "failed", "uncertain_call", "expired"), dict(row)
        assert row["finished_at"] >= row["deadline_at"], f"ended before its time: {dict(row)}"
        latest = max(row["deadline_at"], began_at + SETTLE_MS) + MARGIN_MS
        assert row["finished_at"] <= latest, f"ended too late: {dict(row)}"
    return {row["message_id"] for row in asked}


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


def _chains(sql: sqlite3.Connection, record: Record) -> None:
    """Each agent of a chain was asked once."""
    asked: dict[str, list[str]] = {}
    for row in all_rows(
        sql, "SELECT message_id, in_reply_to FROM messages WHERE kind <> 'reply' ORDER BY seq"
    ):
        asked.setdefault(row["in_reply_to"], []).append(row["message_id"])
    for item in record.items:
        if item.kind == "chain" and item.terminal == "ok":
            (middle,) = asked[item.message_id]
            assert len(asked.get(middle, ())) == 1 or middle in record.asked_about, item


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
