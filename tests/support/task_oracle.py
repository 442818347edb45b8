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
from typing import Final

from tests.support.kill_oracle import (
    all_rows,
    check_conservation,
    copy_of,
    effects_in,
    none_of,
)
from tests.support.model_server import Asked
from tests.support.task_traffic import MARK, THINKER, TaskRecord, Work

MAX_ATTEMPTS: Final = 4

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
    "a task is not at an end": "SELECT task_id, state FROM tasks"
    " WHERE state NOT IN ('done', 'failed', 'cancelled') OR finished_at IS NULL",
    "a schedule goes on": "SELECT task_id FROM schedules WHERE next_at IS NOT NULL",
    "a state that nobody was told of": "SELECT t.task_id, t.state, (SELECT e.data ->> 'state'"
    " FROM events e WHERE e.message_id = t.task_id AND e.type = 'task.changed'"
    " ORDER BY e.seq DESC LIMIT 1) told FROM tasks t"
    " WHERE t.state NOT IN ('todo', 'queued') AND told IS NOT t.state",
    "not delivered": "SELECT outbox_id, kind FROM outbox"
    " WHERE state NOT IN ('delivered', 'dropped', 'unknown')",
    "unknown without a word": "SELECT o.outbox_id FROM outbox o WHERE o.state = 'unknown'"
    " AND o.body ->> 'again' IS NULL AND (SELECT count(*) FROM outbox n"
    " WHERE n.body ->> 'again' = o.outbox_id AND n.kind = 'notice') <> 1",
    "an end was never told": "SELECT message_id FROM messages m WHERE NOT EXISTS"
    " (SELECT 1 FROM events e WHERE e.message_id = m.message_id"
    " AND e.type = 'message.' || m.state)",
    "a wait for nothing": "SELECT * FROM waits",
    "a question for nothing": "SELECT question_id FROM questions WHERE state = 'open'",
    "dead without having been tried enough": "SELECT message_id, attempts FROM messages"
    f" WHERE state = 'dead' AND attempts < {MAX_ATTEMPTS}",
}


def cut_off(home: Path, works: TaskRecord) -> None:
    """Note whose turns a kill has cut off."""
    with copy_of(home) as sql:
        for row in all_rows(sql, "SELECT message_id, fence FROM messages WHERE state = 'leased'"):
            works.interrupted[row["message_id"]].add(row["fence"])


def check_tasks_after_kill(home: Path, works: TaskRecord) -> None:
    """What must hold at every instant, so also in what a kill left behind."""
    with copy_of(home) as sql:
        assert all_rows(sql, "PRAGMA quick_check")[0][0] == "ok"
        _always(sql, home, works)


def check_tasks_at_the_end(home: Path, works: TaskRecord) -> None:
    """What must hold once everything was given its time."""
    with copy_of(home) as sql:
        assert all_rows(sql, "PRAGMA integrity_check")[0][0] == "ok"
        _always(sql, home, works)
        for meaning, query in AT_THE_END.items():
            none_of(sql, meaning, query)
        failed = "SELECT message_id, error_text FROM messages WHERE outcome = 'failed'"
        for row in all_rows(sql, failed):
            assert row["message_id"] in works.left_out, f"failed without a reason: {dict(row)}"
        _answered(sql, works)
        _told(sql, works)
        _worked(sql, home, works)
        _kept_times(sql, works)
        _have_folders(sql, home, works)


def check_paid(home: Path, works: TaskRecord, asked: Sequence[Asked]) -> int:
    """No call of the model was repeated but those that a kill has interrupted; how many were."""
    calls: Counter[tuple[str, int]] = Counter()
    for each in asked:
        said = [str(m["content"]) for m in each.messages if m["role"] == "user"]
        key = next(w for text in reversed(said) for w in text.split() if w.startswith("think-"))
        calls[key.removeprefix("think-"), each.messages[-1]["role"] == "tool"] += 1
    runs = defaultdict(list)
    with copy_of(home) as sql:
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


# -- at every instant ------------------------------------------------------------------------------


def _always(sql: sqlite3.Connection, home: Path, works: TaskRecord) -> None:
    check_conservation(sql)
    for meaning, query in AT_EVERY_INSTANT.items():
        none_of(sql, meaning, query)
    for message_id, lines in effects_in(home).items():
        allowed = 1 + works.again.get(message_id, 0)
        assert lines <= allowed, f"{message_id} had its effect {lines} times, allowed {allowed}"
    rows = {row["task_id"]: row for row in all_rows(sql, "SELECT * FROM tasks")}
    named = Counter(row["name"] for row in rows.values())
    assert not [name for name, count in named.items() if count > 1], named.most_common(3)
    for work in works.works:
        _kept(home, work, rows.get(work.task_id))


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


# -- at the end ------------------------------------------------------------------------------------


def _have_folders(sql: sqlite3.Connection, home: Path, works: TaskRecord) -> None:
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


def _answered(sql: sqlite3.Connection, works: TaskRecord) -> None:
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


def _told(sql: sqlite3.Connection, works: TaskRecord) -> None:
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


def _worked(sql: sqlite3.Connection, home: Path, works: TaskRecord) -> None:
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


def _kept_times(sql: sqlite3.Connection, works: TaskRecord) -> None:
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
