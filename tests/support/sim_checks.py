"""What must hold, asked of the file in plain SQL and compared with what the world saw."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from tests.support.sim_node import LIMITS
from tests.support.sim_world import World

_TERMINAL = {"done", "dead", "cancelled"}
_ENDS = {"message.done", "message.dead", "message.cancelled"}


def check_restart(world: World) -> None:
    """What holds at every instant, so also after a crash."""
    _conservation(world)
    crowded = world.sql(
        "SELECT session_id FROM messages WHERE state = 'leased'"
        " OR (state = 'parked' AND seq NOT IN (SELECT seq FROM set_aside))"
        " GROUP BY session_id HAVING COUNT(*) > 1"
    )
    if crowded:
        world.fail("one-turn-per-session", f"sessions held twice: {[*map(tuple, crowded)]}")
    _accepted_exist(world)
    _stops_kept(world)
    world.check()


def check_end(world: World) -> None:
    """What holds after a calm end: everything has ended, once, and was told."""
    check_restart(world)
    rows = {row["message_id"]: row for row in world.sql("SELECT * FROM messages")}
    events = world.sql("SELECT * FROM events ORDER BY seq")
    _accepted_ended(world, rows)
    _histories(world, rows, events)
    _answers_delivered(world, rows)
    _replies(world, rows, events)
    _bounds(world, rows)
    _late(world, rows)
    world.check()


def _conservation(world: World) -> None:
    counts = {(r["agent_id"], r["state"]): r["count"] for r in world.sql("SELECT * FROM counts")}
    rows = {
        (r["agent_id"], r["state"]): r["n"]
        for r in world.sql("SELECT agent_id, state, COUNT(*) AS n FROM messages GROUP BY 1, 2")
    }
    for agent in {agent for agent, _ in counts} | {agent for agent, _ in rows}:
        mine = {state: n for (owner, state), n in rows.items() if owner == agent}
        kept = {s: n for (a, s), n in counts.items() if a == agent and s != "accepted" and n}
        if mine != kept or counts.get((agent, "accepted"), 0) != sum(mine.values()):
            world.fail("conservation", f"{agent}: rows {mine}, counts {kept}")


def _accepted_exist(world: World) -> None:
    known = {row["message_id"] for row in world.sql("SELECT message_id FROM messages")}
    for message_id, way in world.accepted.items():
        if message_id not in known:
            world.fail("accepted-is-kept", f"{message_id}, accepted by {way}, is not stored")


def _stops_kept(world: World) -> None:
    stored = {r["scope"]: r["counter"] for r in world.sql("SELECT scope, counter FROM epochs")}
    for scope, counter in world.epochs.items():
        if stored.get(scope, 0) < counter:
            world.fail("stop-is-durable", f"{scope}: {counter} told, {stored.get(scope)} stored")
    states = {
        r["message_id"]: r["state"] for r in world.sql("SELECT message_id, state FROM messages")
    }
    for message_id, how in world.stopped.items():
        if states.get(message_id) != "cancelled":
            world.fail("stopped-means-stopped", f"{message_id} is {states.get(message_id)}: {how}")


def _accepted_ended(world: World, rows: dict[str, sqlite3.Row]) -> None:
    for message_id, row in rows.items():
        if row["state"] not in _TERMINAL:
            world.fail("everything-ends", f"{message_id} of {row['agent_id']} is {row['state']}")


def _histories(world: World, rows: dict[str, sqlite3.Row], events: list[sqlite3.Row]) -> None:
    """Walk the log: one end each, one holder per session, order within it, stops final."""
    open_rows: dict[str, set[str]] = {}
    holder: dict[str, str] = {}
    done: set[str] = set()
    accepted: dict[str, int] = {}
    stops: list[tuple[str, int]] = []
    for event in events:
        message_id, session, kind = event["message_id"], event["session_id"], event["type"]
        data = json.loads(event["data"])
        if kind == "stop.applied":
            stops.append((data["scope"], event["seq"]))
            continue
        if message_id not in rows or kind == "chat.out":
            continue
        mine = open_rows.setdefault(session, set())
        if kind in {"message.accepted", "chat.in"}:
            mine.add(message_id)
            accepted[message_id] = event["seq"]
            _check_return(world, rows, message_id, accepted, stops)
        elif kind == "message.started":
            if holder.get(session, message_id) != message_id:
                world.fail("one-turn-per-session", f"{message_id} beside {holder[session]}")
            earlier = [m for m in mine if rows[m]["seq"] < rows[message_id]["seq"]]
            if data["fence"] == 1 and earlier:
                world.fail("session-order", f"{message_id} began before {earlier}")
            holder[session] = message_id
        elif kind in _ENDS:
            mine.discard(message_id)
            if holder.get(session) == message_id:
                del holder[session]
            if kind == "message.done":
                if message_id in done:
                    world.fail("completed-once", message_id)
                done.add(message_id)
        elif kind == "question.asked" and _is_set_aside(rows[message_id], data):
            mine.discard(message_id)
            if holder.get(session) == message_id:
                del holder[session]
        elif kind in {"message.retry", "question.closed"}:
            mine.add(message_id)
            if data.get("code") == "requeued":
                accepted[message_id] = event["seq"]  # a person has begun it anew
            if holder.get(session) == message_id:
                del holder[session]


def _is_set_aside(row: sqlite3.Row, asked: dict[str, Any]) -> bool:
    """Whether the session goes on beside that question: nobody in a chat waits for the work."""
    to = json.loads(row["deliver_to"])
    is_said = (row["kind"], row["lane"], to["kind"]) == ("chat", "interactive", "chat")
    return bool(asked["kind"] == "uncertain" and not is_said)


def _check_return(
    world: World,
    rows: dict[str, sqlite3.Row],
    message_id: str,
    accepted: dict[str, int],
    stops: list[tuple[str, int]],
) -> None:
    """Work begun in a scope before its stop brings nothing into that scope after it, but for the
    results of what a stop of one session leaves: work of others, in the background."""
    row = rows[message_id]
    root = rows.get(row["root_id"])
    if root is None or root["message_id"] == message_id:
        return
    for scope, stop_seq in stops:
        kind, _, subject = scope.partition(":")
        column = {"agent": "agent_id", "session": "session_id"}.get(kind)
        is_in = column is None or (row[column] == subject and root[column] == subject)
        if kind == "session" and _is_kept(rows, row, accepted, stop_seq):
            continue
        if is_in and accepted[root["message_id"]] < stop_seq:
            what = f"{message_id} ({row['kind']} of {root['message_id']})"
            world.fail("nothing-returns", f"{what} came into {scope} after its stop")


def _is_kept(
    rows: dict[str, sqlite3.Row], row: sqlite3.Row, accepted: dict[str, int], stop_seq: int
) -> bool:
    """Whether it is the result of work that the stop has left, also by way of another agent's turn
    on that result, or that such a turn has begun; not what a turn that should have ended has begun
    since."""
    work = rows.get(row["in_reply_to"])
    if row["kind"] != "reply" or work is None:
        return False
    begun_by = accepted.get(work["in_reply_to"], 0)
    is_left = accepted[work["message_id"]] < stop_seq or begun_by > stop_seq
    return is_left or _is_kept(rows, work, accepted, stop_seq)


def _answers_delivered(world: World, rows: dict[str, sqlite3.Row]) -> None:
    parts: dict[str, list[sqlite3.Row]] = {}
    for part in world.sql("SELECT * FROM outbox"):
        parts.setdefault(part["message_id"], []).append(part)
        if part["state"] == "pending":
            world.fail("answer-delivered", f"part {part['outbox_id']} still waits")
        arrived = world.delivered[part["outbox_id"]]
        if part["state"] == "delivered" and not arrived:
            world.fail("answer-delivered", f"part {part['outbox_id']} is said to have arrived")
    for message_id, row in rows.items():
        to = json.loads(row["deliver_to"])
        if to["kind"] != "chat" or to.get("silent") or row["state"] not in {"done", "dead"}:
            continue
        wanted = "answer" if row["outcome"] == "ok" else "notice"
        told = [part for part in parts.get(message_id, []) if part["kind"] == wanted]
        if not told:
            world.fail("answer-delivered", f"{message_id} ended {row['state']} and nobody was told")
        if wanted == "answer" and len(told) != 1:
            world.fail("completed-once", f"{message_id} was answered {len(told)} times")


def _replies(world: World, rows: dict[str, sqlite3.Row], events: list[sqlite3.Row]) -> None:
    replies: dict[str, int] = {}
    for row in rows.values():
        if row["kind"] == "reply":
            replies[row["in_reply_to"]] = replies.get(row["in_reply_to"], 0) + 1
    refused = {
        event["message_id"]
        for event in events
        if event["type"] in _ENDS and json.loads(event["data"]).get("delivered") == "refused"
    }
    stops = [json.loads(e["data"])["scope"] for e in events if e["type"] == "stop.applied"]
    tries: dict[str, int] = {}  # a dead letter that is put back is answered again
    for event in events:
        if event["type"] == "message.retry" and json.loads(event["data"])["code"] == "requeued":
            tries[event["message_id"]] = tries.get(event["message_id"], 1) + 1
    for message_id, row in rows.items():
        to = json.loads(row["deliver_to"])
        if to["kind"] != "mailbox" or row["state"] == "cancelled":
            continue
        count = replies.get(message_id, 0)
        if count > tries.get(message_id, 1):
            world.fail("completed-once", f"{count} replies to {message_id}")
        scopes = {"all", f"agent:{to['agent_id']}", f"session:{to.get('session_id')}"}
        if to.get("waited"):
            if world.asked.get((row["in_reply_to"], json.loads(row["parts"])[0]["text"])) == "":
                continue
        elif count == 0 and not (message_id in refused and scopes & set(stops)):
            world.fail("answer-delivered", f"{message_id} has no reply")
    _timed_out(world, rows, replies, refused)


def _timed_out(
    world: World, rows: dict[str, sqlite3.Row], replies: dict[str, int], refused: set[str]
) -> None:
    """A turn that was told "not in time" gets the answer later, as a message."""
    for row in rows.values():
        text = json.loads(row["parts"])[0].get("text", "")
        if not row["in_reply_to"] or row["kind"] == "reply" or not text.startswith("{"):
            continue
        told = world.asked.get((row["in_reply_to"], json.loads(text)["t"]))
        if told != "timed_out" or row["state"] == "cancelled":
            continue
        if not replies.get(row["message_id"]) and row["message_id"] not in refused:
            world.fail("answer-delivered", f"{row['message_id']} timed out and was never answered")


def _bounds(world: World, rows: dict[str, sqlite3.Row]) -> None:
    roots: dict[str, int] = {}
    for message_id, row in rows.items():
        path = json.loads(row["path"])
        if row["kind"] != "reply" and (row["agent_id"] in path or len(path) > LIMITS.max_depth):
            world.fail("bounded", f"{message_id} for {row['agent_id']} has the path {path}")
        if row["kind"] != "reply":
            roots[row["root_id"]] = roots.get(row["root_id"], 0) + 1
    for root, count in roots.items():
        if count > LIMITS.max_messages_per_root:
            world.fail("bounded", f"{count} messages come from {root}")


def _late(world: World, rows: dict[str, sqlite3.Row]) -> None:
    for message_id, fence in world.late.items():
        if rows[message_id]["fence"] != fence:
            world.fail("fenced", f"{message_id} was ended by an owner that had lost it")
