"""A storm: programs, people in the console and in Telegram, chains of agents and tasks, all at once,
while the daemon is killed. Nobody answers a question.

The users, the givers and their judges are those of the kills of one kind of traffic; here they share
one home. What a person has said in a chat waits there for ever, so work with an effect that can't be
repeated is given by programs, agents and tasks alone: theirs ends in time, also where a chat is told.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from agentsup.fakes.telegram import TelegramDriver
from tests.support.chat_oracle import check_chats
from tests.support.kill_oracle import all_rows, check_after_kill, check_at_the_end, copy_of
from tests.support.kill_traffic import AGENTS, Record, User
from tests.support.kill_traffic import RULES as OF_MESSAGES
from tests.support.task_chat_traffic import Place
from tests.support.task_oracle import check_tasks_after_kill, check_tasks_at_the_end
from tests.support.task_traffic import RULES as OF_TASKS
from tests.support.task_traffic import TaskClient, TaskRecord
from tests.support.telegram_process import UNHURRIED

WITHIN_S: Final = 2.0
SETTLE_S: Final = 1.0
COMMAND: Final = (
    "from agentsup.agents.turn import handler\n"
    "from agentsup.mailbox.messages import steady_clock\n"
    f"handler.UNCERTAIN_WITHIN_S, steady_clock.SETTLE_S = {WITHIN_S}, {SETTLE_S}\n{UNHURRIED}"
)
"""The daemon with seconds for the quarter of an hour that a question about lost work waits, and for the
minute in which the clock may be set after a start."""
MARGIN_S: Final = 20.0
"""How much later an end may come on a slow machine."""
RULES: Final[list[dict[str, Any]]] = [
    {
        "match": r"chain (\w+) (\w+) (\S+)",
        "steps": [
            {"tool": {"name": "ask_agent", "args": {"to": "$1", "message": "ask $2 $3-mid"}}},
            {"say": "chained $3: $result"},
        ],
    },
    {"match": r"spawn (\S+)", "steps": [{"spawn": 0.4}, {"say": "spawned $1"}]},
    *OF_TASKS,
    *OF_MESSAGES,
]
_OF_TEXTS: Final = ("say", "chain", "spawn")


class Program(User):
    """One that talks over HTTP."""

    kinds = ("say", "effect", "ask", "relay", "chain", "chain", "spawn")


class Talker(User):
    """A person in the console, whose work waits for nobody."""

    kinds = ("say", "stream", "ask", "chain", "spawn")


class Silent(TaskClient):
    """A giver of tasks, half of which tell a chat, who asks for nothing that waits without end."""

    kinds = ("say", "effect", "effect", "cancel", "resume", "todo")


class Writer:
    """A person who writes to main's bot, whether the daemon runs or not."""

    def __init__(
        self,
        number: int,
        chance: random.Random,
        people: TelegramDriver,
        place: Place,
        pace: asyncio.Event,
    ) -> None:
        """``pace`` is set while the person may write."""
        self._name, self._chance, self._pace = f"t{number}", chance, pace
        self._people, self._place = people, place
        self.texts: dict[str, str] = {}
        """What was written, with the answer that a turn without trouble gives."""

    async def live(self) -> None:
        """Write until cancelled."""
        while True:
            await self._pace.wait()
            key = f"{self._name}-{len(self.texts)}"
            kind = self._chance.choice(_OF_TEXTS)
            first, second = self._chance.sample([name for name in AGENTS if name != "main"], 2)
            text, answer = {
                "say": (f"say {key}", f"said {key}"),
                "spawn": (f"spawn {key}", f"spawned {key}"),
                "chain": (
                    f"chain {first} {second} {key}",
                    f"chained {key}: asked {key}-mid: did {key}-mid-in",
                ),
            }[kind]
            self.texts[text] = answer
            place = self._place
            await self._people.say(place.chat, text, user=place.user, thread=place.thread)
            await asyncio.sleep(self._chance.uniform(0.05, 0.4))


def check_storm_after_kill(home: Path, record: Record, works: TaskRecord) -> None:
    """What must hold at every instant."""
    check_after_kill(home, record)
    check_tasks_after_kill(home, works)


def check_storm(
    home: Path,
    record: Record,
    works: TaskRecord,
    writers: Sequence[Writer],
    seen: Sequence[dict[str, Any]],
    began_at: int,
) -> Counter[str]:
    """What must hold once everything had its time, though nobody answered. ``seen`` are all messages
    of the bot; ``began_at`` (wall ms) is when the last life began. What there was of each kind."""
    with copy_of(home) as sql:
        unheard = _ended_in_time(sql, began_at)
        _chains(sql, record, unheard)
        found = _written(sql, writers)
    for kept in (record, works):
        kept.asked_about, kept.left_out = set(unheard), set(unheard)
    check_at_the_end(home, record)
    check_tasks_at_the_end(home, works)
    found["asked about, and nobody said"] = len(unheard)
    return found + check_chats(home, works, seen)


def _ended_in_time(sql: sqlite3.Connection, began_at: int) -> set[str]:
    """The messages about whose lost call somebody was asked: failed, not early and not late."""
    asked = all_rows(
        sql,
        "SELECT m.message_id, m.state, m.outcome, m.error_code, m.finished_at, q.deadline_at,"
        " q.state AS asked FROM questions q JOIN messages m USING (message_id)"
        " WHERE q.kind = 'uncertain'",
    )
    for row in asked:
        told = (row["state"], row["outcome"], row["error_code"], row["asked"])
        if row["state"] in {"dead", "cancelled"}:
            continue
        assert told == ("done", "failed", "uncertain_call", "expired"), dict(row)
        assert row["finished_at"] >= row["deadline_at"], f"ended before its time: {dict(row)}"
        latest = max(row["deadline_at"], began_at + SETTLE_S * 1000) + MARGIN_S * 1000
        assert row["finished_at"] <= latest, f"ended too late: {dict(row)}"
    return {row["message_id"] for row in asked}


def _chains(sql: sqlite3.Connection, record: Record, unheard: set[str]) -> None:
    """Each agent of a chain was asked once."""
    asked: dict[str, list[str]] = {}
    for row in all_rows(
        sql, "SELECT message_id, in_reply_to FROM messages WHERE kind <> 'reply' ORDER BY seq"
    ):
        asked.setdefault(row["in_reply_to"], []).append(row["message_id"])
    for item in record.items:
        if item.kind == "chain" and item.terminal == "ok":
            (middle,) = asked[item.message_id]
            assert len(asked.get(middle, ())) == 1 or middle in unheard, item


def _written(sql: sqlite3.Connection, writers: Sequence[Writer]) -> Counter[str]:
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
            assert kinds.count("answer") == 1, (dict(row), kinds)
            assert row["result_text"] == answer or row["root_id"] in troubled, dict(row)
        else:
            assert kinds, f"ended badly without a word: {dict(row)}"
        found[f"written {text.split()[0]} {row['outcome'] or row['state']}"] += 1
    return found
