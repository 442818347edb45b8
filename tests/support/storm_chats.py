"""The judge of what was said in Telegram under kills: the platform's own record and plain SQL.

Each part that the daemon wrote down is in its chat once; or its fate is ``unknown``, then it is there
once at most, and one note says so. Nothing else is there. None of agentsup's own code is used.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, Final

from tests.support import storm_record
from tests.support.storm_oracle import all_rows, none_of
from tests.support.storm_telegram import Writer

Record = dict[str, Any]
At = tuple[str, int]
"""A message: the conversation it stands in, and its id there."""

_UNTIL: Final = "\n\n⏳ "
_REPEAT: Final = "Perhaps for the second time:"
_NO_ROW: Final = {
    "one part, two notes": "SELECT body ->> 'again' part FROM outbox WHERE part IS NOT NULL"
    " AND body ->> 'repeat_of' IS NULL GROUP BY part HAVING count(*) > 1",
    "a note for nothing": "SELECT n.outbox_id FROM outbox n LEFT JOIN outbox o"
    " ON o.outbox_id = n.body ->> 'again' WHERE n.body ->> 'again' IS NOT NULL"
    " AND o.state IS NOT 'unknown'",
    "unknown without its note": "SELECT o.outbox_id FROM outbox o WHERE o.state = 'unknown'"
    " AND o.body ->> 'again' IS NULL AND NOT EXISTS (SELECT 1 FROM outbox n"
    " WHERE n.body ->> 'again' = o.outbox_id AND n.kind = 'notice'"
    " AND n.conversation = o.conversation AND n.message_id = o.message_id)",
    "shown again unasked": "SELECT o.outbox_id FROM outbox o WHERE o.body ->> 'repeat_of' IS NOT NULL"
    " AND NOT EXISTS (SELECT 1 FROM outbox n WHERE n.body ->> 'again' = o.body ->> 'repeat_of')",
    "shown again twice": "SELECT body ->> 'repeat_of' part FROM outbox WHERE part IS NOT NULL"
    " GROUP BY part HAVING count(*) > 1",
    "a question was put twice": "SELECT body ->> 'question_id' asked FROM outbox"
    " WHERE kind = 'question' AND body ->> 'repeat_of' IS NULL GROUP BY asked HAVING count(*) > 1",
    "no result, and nobody was told": "SELECT m.message_id, m.state FROM messages m"
    " JOIN runs r ON r.run_id = m.message_id WHERE m.deliver_to ->> 'channel' = 'telegram'"
    " AND (m.state = 'dead' OR m.outcome = 'failed')"
    " AND m.message_id NOT IN (SELECT o.message_id FROM outbox o WHERE o.kind <> 'question')",
}


def place_of(record: Record) -> str:
    """The conversation in which a message stands, as the daemon calls it."""
    message = record["message"]
    thread = message.get("message_thread_id")
    chat_id = message["chat"]["id"]
    return f"{chat_id}/{thread}" if thread else str(chat_id)


def check_chats(
    sql: sqlite3.Connection, works: storm_record.Record, seen: Sequence[Record]
) -> Counter[str]:
    """``seen`` are all messages that the bot ever sent. What there was of each kind."""
    shown = {(place_of(record), record["message"]["message_id"]): record for record in seen}
    assert len(shown) == len(seen)
    for meaning, query in _NO_ROW.items():
        none_of(sql, meaning, query)
    parts = all_rows(sql, "SELECT * FROM outbox WHERE channel = 'telegram' ORDER BY outbox_id")
    ended = all_rows(sql, "SELECT question_id FROM questions WHERE state <> 'open'")
    found = _each_once(parts, shown, {row["question_id"] for row in ended})
    _asked_and_closed(sql, shown)
    _where_asked(sql, works)
    return found


def _each_once(
    parts: Sequence[sqlite3.Row], shown: dict[At, Record], closed: set[str]
) -> Counter[str]:
    """Every part has its message and every message its part; ``closed`` are questions."""
    found: Counter[str] = Counter()
    free = dict(shown)
    for part in parts:
        ids = json.loads(part["platform_ids"])
        if part["state"] == "delivered":
            assert len(ids) == 1, f"a short text of {len(ids)} messages: {dict(part)}"
            record = free.pop((part["conversation"], int(ids[0])), None)
            assert record is not None, f"lost, or one message for two parts: {dict(part)}"
            assert _says(record, part), f"not what was to be said: {record}, {dict(part)}"
            found[f"{part['kind']} once"] += 1
    by_text: dict[tuple[str, str], list[At]] = defaultdict(list)
    for at, record in free.items():
        for text in _texts(record):
            by_text[at[0], text].append(at)
    for part in parts:
        if part["state"] == "delivered":
            continue
        # A question that is answered before anybody knows that it was put is put no more.
        is_moot = part["kind"] == "question" and part["state"] == "dropped"
        is_moot = is_moot and json.loads(part["body"])["question_id"] in closed
        assert is_moot or part["state"] == "unknown", f"neither there nor in doubt: {dict(part)}"
        same = by_text[part["conversation"], _wanted(part)]
        arrived = free.pop(same.pop(), None) if same else None
        found[f"{part['kind']} {part['state']}, {'' if arrived else 'not '}arrived"] += 1
    assert not free, f"sent twice, or written down by nobody: {list(free.values())[:3]}"
    return found


def _texts(record: Record) -> list[str]:
    """What a message says, and said before each edit; of it alone what does not vary, so not until
    when a question can be answered."""
    versions = (str(each.get("text", "")) for each in [*record["history"], record["message"]])
    return list(dict.fromkeys(plain(text.partition(_UNTIL)[0]) for text in versions))


def _wanted(part: sqlite3.Row) -> str:
    body = json.loads(part["body"])
    return plain((_REPEAT if "repeat_of" in body else "") + str(body["text"]))


def plain(text: str) -> str:
    """Of a text what no way of writing it changes."""
    return "".join(each for each in text if each.isalnum())


def _says(record: Record, part: sqlite3.Row) -> bool:
    """Its text, and with a question that has a deadline, that it has one."""
    versions = [*record["history"], record["message"]]
    is_timed = json.loads(part["body"]).get("deadline_at") is not None
    has_time = any(_UNTIL in str(each.get("text", "")) for each in versions)
    return _wanted(part) in _texts(record) and has_time == is_timed


def _asked_and_closed(sql: sqlite3.Connection, shown: dict[At, Record]) -> None:
    """How a question ended stands where it was asked, and nothing can be pressed there any more. One
    that was shown again may be there with its buttons: a press there is told that it comes late."""
    for row in all_rows(
        sql,
        "SELECT q.question_id, q.state, q.answer, o.conversation, o.platform_ids FROM questions q"
        " JOIN outbox o ON o.kind = 'question' AND o.body ->> 'question_id' = q.question_id"
        " WHERE o.channel = 'telegram' AND o.state = 'delivered' AND q.state <> 'open'"
        " AND o.body ->> 'repeat_of' IS NULL",
    ):
        record = shown[row["conversation"], int(json.loads(row["platform_ids"])[0])]
        asked, told = record["message"].get("reply_markup"), record["message"]["text"]
        assert not asked, f"it can still be answered: {dict(row)}, {record['message']}"
        assert row["state"] != "answered" or row["answer"] in told, (dict(row), told)


def _where_asked(sql: sqlite3.Connection, works: storm_record.Record) -> None:
    """Each result, and what an agent made of it, goes to where the work was asked for."""
    places = {work.task_id: work for work in works.works if work.place and work.task_id}
    for row in all_rows(
        sql,
        "SELECT t.task_id, m.deliver_to, n.deliver_to AS then_to FROM tasks t"
        " JOIN runs r USING (task_id) JOIN messages m ON m.message_id = r.run_id"
        " LEFT JOIN messages n ON n.kind = 'reply' AND n.in_reply_to = m.message_id",
    ):
        work = places.get(row["task_id"])
        if work is not None:
            told = json.loads(row["then_to"] if work.kind == "make" else row["deliver_to"])
            assert f"{told.get('channel')}:{told.get('conversation')}" == work.place, (work, told)


def check_written(sql: sqlite3.Connection, writers: Sequence[Writer]) -> Counter[str]:
    """Each text of people in Telegram is one message, and has one answer in the outbox or a word."""
    found: Counter[str] = Counter()
    rows: dict[str, list[sqlite3.Row]] = {}
    for row in all_rows(
        sql,
        "SELECT message_id, root_id, state, outcome, result_text, parts ->> '$[0].text' AS text"
        " FROM messages WHERE kind = 'chat'"
        " AND deliver_to ->> '$.channel' = 'telegram'",
    ):
        rows.setdefault(row["text"], []).append(row)
    said: dict[str, list[str]] = {}
    for part in all_rows(
        sql, "SELECT message_id, kind FROM outbox WHERE body ->> 'again' IS NULL AND kind <> 'edit'"
    ):
        said.setdefault(part["message_id"], []).append(part["kind"])
    bad = "SELECT root_id FROM messages WHERE state = 'dead' OR outcome = 'failed'"
    troubled = {row["root_id"] for row in all_rows(sql, bad)}
    for text, answer in ((t, a) for writer in writers for t, a in writer.texts.items()):
        mine = rows.get(text, [])
        assert len(mine) == 1, f"written once, {len(mine)} messages: {text}"
        (row,) = mine
        kinds = said.get(row["message_id"], [])
        if (row["state"], row["outcome"]) == ("done", "ok"):
            assert kinds.count("answer") == 1, f"not answered once: {dict(row)}, {kinds}"
            assert row["result_text"] == answer or row["root_id"] in troubled, dict(row)
        else:
            assert kinds, f"ended badly without a word: {dict(row)}"
        found[f"written {text.split()[0]} {row['outcome'] or row['state']}"] += 1
    return found


def check_order(writers: Sequence[Writer], seen: Sequence[Record]) -> None:
    """Answers stand in their chat in the order in which they were asked for."""
    for writer in writers:
        place = writer.place.conversation
        at = {answer: number for number, answer in enumerate(writer.texts.values())}
        here = sorted(
            (record["message"]["message_id"], at[record["message"]["text"]])
            for record in seen
            if place_of(record) == place and record["message"].get("text") in at
        )
        numbers = [number for _, number in here]
        assert numbers == sorted(numbers), f"answers out of order in {place}: {numbers}"
