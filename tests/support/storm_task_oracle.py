"""The judge of kills over tasks: the givers' record, effect files, folders and plain SQL.

As its like for messages it reads a copy of the store as the kill left it and uses none of agentsup's
own code: what a task's state must be is told here once more, from its run's message.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from tests.support.model_server import Asked
from tests.support.storm_oracle import (
    all_rows,
    effects_in,
)
from tests.support.storm_record import Record, Work
from tests.support.storm_tasks import MARK, THINKER


def check_tasks_after_kill(sql: sqlite3.Connection, home: Path, works: Record) -> None:
    """What must hold at every instant, so also in what a kill left behind."""
    rows = {row["task_id"]: row for row in all_rows(sql, "SELECT * FROM tasks")}
    named = Counter(row["name"] for row in rows.values())
    assert not [name for name, count in named.items() if count > 1], named.most_common(3)
    for work in works.works:
        _kept(home, work, rows.get(work.task_id))


def check_tasks_at_the_end(sql: sqlite3.Connection, home: Path, works: Record) -> None:
    """What must hold once everything was given its time."""
    check_tasks_after_kill(sql, home, works)
    _answered(sql, works)
    _told(sql, works)
    _worked(sql, home, works)
    _kept_times(sql, works)
    _have_folders(sql, home, works)


def check_paid(sql: sqlite3.Connection, works: Record, asked: Sequence[Asked]) -> int:
    """No call of the model was repeated but those that a kill has interrupted; how many were."""
    calls: Counter[tuple[str, int]] = Counter()
    for each in asked:
        said = [str(m["content"]) for m in each.messages if m["role"] == "user"]
        key = next(w for text in reversed(said) for w in text.split() if w.startswith("think-"))
        calls[key.removeprefix("think-"), each.messages[-1]["role"] == "tool"] += 1
    runs = defaultdict(list)
    for row in all_rows(
        sql,
        "SELECT t.name, r.run_id FROM runs r JOIN tasks t USING (task_id)"
        " WHERE r.agent_id = (SELECT agent_id FROM agents WHERE name = ?)",
        THINKER,
    ):
        runs[row["name"]].append(row["run_id"])
    for (key, is_last), count in calls.items():
        cuts = sum(len(works.interrupted.get(run_id, ())) for run_id in runs[key])
        assert count <= len(runs[key]) + cuts, (
            f"{key}, call {1 + is_last}: {count} requests, {len(runs[key])} runs, {cuts} cut off"
        )
    return sum(count - 1 for count in calls.values())


def _kept(home: Path, work: Work, row: sqlite3.Row | None) -> None:
    """What was confirmed is there under the id that was told, and an end that was seen stands."""
    assert len(work.ids_given) <= 1, f"one key, two tasks: {work}"
    if not work.task_id:
        return
    may_be_gone = work.kind == "delete" and work.was_tried
    assert row is not None or may_be_gone, f"confirmed and lost: {work}"
    assert row is None or not work.is_deleted, f"deleted and there: {work}"
    if row is not None and work.terminal:
        seen = (row["state"], row["result"])
        assert seen == (work.terminal, work.result), (work, seen)
    if "marked" in work.done_steps:
        places = [home / "tasks" / work.task_id, home / "tasks" / ".deleted" / work.task_id]
        found = [place for place in places if (place / MARK).is_file()]
        assert len(found) == 1, f"the folder of {work} is lost, or there twice: {found}"
        if not may_be_gone:
            assert found == places[:1], f"put away, though nobody said so: {work}"


def _have_folders(sql: sqlite3.Connection, home: Path, works: Record) -> None:
    """A task that was confirmed or worked on has its folder. One that was killed before it had one,
    never confirmed and ended before its first turn, has had no use for it."""
    confirmed = {work.task_id for work in works.works}
    for row in all_rows(
        sql,
        "SELECT t.task_id, t.name, (SELECT count(*) FROM runs r JOIN messages m"
        " ON m.message_id = r.run_id WHERE r.task_id = t.task_id"
        " AND m.started_at IS NOT NULL) AS begun FROM tasks t",
    ):
        is_needed = row["begun"] or row["task_id"] in confirmed
        folder = home / "tasks" / row["task_id"]
        assert folder.is_dir() or not is_needed, f"the folder of {dict(row)} is lost"


def _answered(sql: sqlite3.Connection, works: Record) -> None:
    """Each has one end: its result, or a reason why there is none."""
    bad = "SELECT message_id, parts FROM messages WHERE state = 'dead' OR outcome = 'failed'"
    badly = {row["message_id"]: row["parts"] for row in all_rows(sql, bad)}
    runs = {r["task_id"]: r["current_run"] for r in all_rows(sql, "SELECT * FROM tasks")}
    for work in works.works:
        assert work.terminal, f"the giver never learnt the end of {work}"
        if work.terminal == "dead":
            said = f'"make {work.detail} {work.key}"'
            assert work.message_id in badly or any(said in text for text in badly.values()), work
        elif work.terminal == "failed":
            assert work.is_deleted or runs[work.task_id] in badly, work
        elif work.terminal == "cancelled":
            assert work.kind in {"cancel", "schedule"}, f"nobody cancelled {work}"
        elif work.kind in {"make", "chat"}:
            assert work.result.startswith(work.expected()), work
        else:
            assert work.result == work.expected(), work


def _told(sql: sqlite3.Connection, works: Record) -> None:
    """Each result is in the one place it was asked from, once; whether what was written for
    Telegram is seen there too, is for the judge of the chats."""
    shown: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for row in all_rows(
        sql,
        "SELECT message_id, conversation, data ->> 'text' AS text FROM events"
        " WHERE type = 'chat.out' AND data ->> 'kind' = 'answer'"
        " AND conversation NOT LIKE 'telegram:%' UNION ALL"
        " SELECT message_id, channel || ':' || conversation, body ->> 'text' FROM outbox"
        " WHERE channel = 'telegram' AND kind = 'answer' AND body ->> 'repeat_of' IS NULL",
    ):
        shown[row["message_id"]].append((row["conversation"], row["text"]))
    for row in all_rows(
        sql,
        "SELECT r.run_id, t.name, m.deliver_to, m.result_text FROM runs r"
        " JOIN tasks t USING (task_id) JOIN messages m ON m.message_id = r.run_id"
        " WHERE m.state = 'done' AND m.outcome = 'ok'",
    ):
        to = json.loads(row["deliver_to"])
        seen = shown.get(row["run_id"], [])
        if to["kind"] == "chat":
            place = f"{to['channel']}:{to['conversation']}"
            assert [where for where, _ in seen] == [place], (dict(row), seen)
            assert seen[0][1].endswith(row["result_text"]), (dict(row), seen)
        else:
            assert not seen, (dict(row), seen)
        if to["kind"] == "mailbox":
            _came_back(sql, row["run_id"], row["result_text"], shown)


def _came_back(
    sql: sqlite3.Connection, run_id: str, text: str, shown: dict[str, list[tuple[str, str]]]
) -> None:
    """To the session of the agent that had it made, as one turn, and from there to the chat."""
    replies = all_rows(
        sql, "SELECT * FROM messages WHERE kind = 'reply' AND in_reply_to = ?", run_id
    )
    assert len(replies) == 1, (run_id, len(replies))
    (reply,) = replies
    assert text in reply["parts"], (text, reply["parts"])
    then = json.loads(reply["deliver_to"])
    if then["kind"] == "chat" and (reply["state"], reply["outcome"]) == ("done", "ok"):
        seen = shown.get(reply["message_id"], [])
        assert seen == [(f"{then['channel']}:{then['conversation']}", reply["result_text"])], seen
        assert reply["result_text"].startswith("heard "), dict(reply)


def _worked(sql: sqlite3.Connection, home: Path, works: Record) -> None:
    """What was to have an effect had it."""
    effects = effects_in(home)
    rows = all_rows(
        sql,
        "SELECT r.run_id, t.prompt FROM runs r JOIN tasks t USING (task_id)"
        " JOIN messages m ON m.message_id = r.run_id WHERE m.state = 'done' AND m.outcome = 'ok'",
    )
    for row in rows:
        has_effect = row["prompt"].split()[0] in {"effect", "tick", "question"}
        if row["run_id"] not in works.asked_about:
            assert effects[row["run_id"]] == has_effect, (dict(row), effects[row["run_id"]])


def _kept_times(sql: sqlite3.Connection, works: Record) -> None:
    """Every time of a schedule was run, or recorded with its reason; and none was made up."""
    for row in all_rows(sql, "SELECT * FROM schedules"):
        period = round(float(row["spec"]) * 1000)
        decided: set[int] = set()
        for run in all_rows(
            sql, "SELECT slot_at, skip_until FROM runs WHERE task_id = ?", row["task_id"]
        ):
            assert not run["skip_until"], dict(run)
            decided.add(run["slot_at"])
        if row["last_at"] is None:
            assert not decided, dict(row)
            continue
        expected = range(row["anchor_at"] + period, row["last_at"] + 1, period)
        assert decided == set(expected), (dict(row), sorted(set(expected) ^ decided))
    for work in works.works:
        if work.kind == "schedule":
            (found,) = all_rows(sql, "SELECT * FROM schedules WHERE task_id = ?", work.task_id)
            assert found["next_at"] is None, work
