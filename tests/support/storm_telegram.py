"""People who have background work done from Telegram, for kills: they outlive every daemon.

Each has a place of their own, a private chat or a topic, and does there what people do: asks for a
task by ``/task`` or by a word to the agent, presses what is asked (the button of an earlier life of
the daemon too) or types the answer, and has shown again what may not have arrived. They learn what
a task is called from what they are shown, and write and press also while no daemon runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from agentsup.fakes.telegram import ControlRefused, TelegramDriver
from tests.support.daemon_process import DaemonProcess
from tests.support.storm_record import AGENTS, GONE, Record, Work
from tests.support.storm_tasks import ENDED, TaskClient, mark

T = TypeVar("T")
Json = dict[str, Any]

PLACES: Final = 6
TOPICS: Final = 2
"""So many of the places are topics of one group."""
_TOKEN: Final = "7003:AAFmain" + "x" * 20
_BOT: Final = "main_bot"
_KINDS: Final = ("say", "effect", "question", "question", "cancel", "resume", "make", "make")
_OF_WRITERS: Final = ("say", "chain", "spawn")
_REPEAT: Final = "Perhaps for the second time:"
_CUT: Final = "I was restarted while"
_STEP_S: Final = 0.1
_PATIENCE_S: Final = 60.0
_ASKS_AFTER_S: Final = 2.0
_TROUBLE: Final = {"cut_after": 0.02, "cut_before": 0.02, "late": 0.02}
"""What goes wrong on the way to the platform besides the kills, by its chance for each message."""

_LOST: Final = """
SELECT q.question_id, q.message_id, q.kind FROM questions q
JOIN outbox o ON o.message_id = q.message_id AND o.body ->> '$.question_id' = q.question_id
JOIN outbox n ON n.message_id = q.message_id AND n.body ->> '$.again' = o.outbox_id
WHERE q.state = 'open' AND o.conversation = ? AND o.state = 'unknown' AND n.state = 'unknown'
"""
_CUT_UNHEARD: Final = f"""
SELECT 1 FROM outbox o JOIN outbox n ON n.body ->> '$.again' = o.outbox_id
WHERE o.conversation = ? AND o.body ->> '$.text' LIKE '{_CUT}%'
AND o.state = 'unknown' AND n.state = 'unknown'
"""


@dataclass(frozen=True, slots=True)
class Place:
    """A chat of the fake, or a topic in it; ``conversation`` is what the daemon calls it."""

    chat: str
    user: int
    thread: int | None
    conversation: str


class TaskChatCluster:
    """Who writes to main's bot, and where."""

    def __init__(self, people: TelegramDriver) -> None:
        self.people = people
        self.places: list[Place] = []
        self._entry: Json = {}

    async def settle(self, seed: int, *, places: int = PLACES, topics: int = TOPICS) -> None:
        """Make everybody and everything; trouble comes by ``seed``."""
        people = self.people
        bot = await people.add_bot(_TOKEN, username=_BOT, can_read_all_group_messages=True)
        users = [await people.user(f"Person{number}") for number in range(places)]
        forum = await people.group("Home", [*users, bot], administrators=[bot], forum=True)
        for number, user in enumerate(users):
            if number < topics:
                thread = await people.topic(forum, f"Topic{number}", user=user)
                self.places.append(Place(forum, user, thread, f"{forum}/{thread}"))
            else:
                self.places.append(Place(await people.private(user, bot), user, None, str(user)))
        for kind, chance in _TROUBLE.items():
            facts = {"method": "sendMessage", "probability": chance, "seed": seed, "seconds": 0.3}
            await people.fault(kind, **facts)
        self._entry = {
            "telegram_token": _TOKEN,
            # A long text is shown while it is written; a kill would leave what nobody wrote down.
            "streaming": {"mode": "off"},
            "telegram_base_url": people.url,
            "allowed_user_ids": users,
            "allowed_group_ids": [int(forum)],
            "group_mention_only": False,
        }

    def entry(self) -> Json:
        """What is added to the entry of the agent whose bot it is."""
        return self._entry

    async def seen(self) -> list[Json]:
        """Each message that the bot has ever sent, with what it said before its edits."""
        found: list[Json] = []
        for chat in dict.fromkeys(place.chat for place in self.places):
            found += await self.people.messages(chat, deleted=True)
        return [record for record in found if record["is_bot"]]


class Person(TaskClient):
    """A giver in Telegram."""

    kinds = _KINDS

    def __init__(
        self,
        number: int,
        chance: random.Random,
        works: Record,
        people: TelegramDriver,
        place: Place,
    ) -> None:
        super().__init__(number, chance, works)
        self._agent = "main"
        self._people, self._place = people, place
        self._since = 0
        """The message that asked for the work in hand."""
        self._commanded = 0
        """The latest command; a kill may cut it off, which is told."""
        self._asks_at = 0.0
        """Who has learnt nothing by then looks at the list, by the clock of people."""
        self._read = 0
        """The latest message that was looked at for what it asks."""
        self._answered: set[str] = set()

    async def arrive(self, daemon: DaemonProcess) -> None:
        """Nothing: work is always asked for with a word in the chat."""

    async def live(self, daemon: DaemonProcess, wants_more: Callable[[], bool]) -> None:
        """As others do; now and then also something while the daemon is away."""
        await super().live(daemon, wants_more)
        if daemon.is_running or not wants_more() or self._chance.random() < 0.4:
            return
        if self.work is None:
            self.work = self._next()
            await self._begin(self.work)
        else:
            await self._react(daemon)

    def _next(self) -> Work:
        work = super()._next()
        work.conversation = ""
        work.place = f"telegram:{self._place.conversation}"
        return work

    async def _through(
        self, daemon: DaemonProcess, work: Work, wants_more: Callable[[], bool]
    ) -> None:
        await self._begin(work)
        if not work.task_id:
            work.task_id = await self._until(daemon, lambda: self._learnt(daemon, work))
            if work.terminal:
                return
            work.ids_given.add(work.task_id)
            work.acked_at_ms = time.time_ns() // 1_000_000
            mark(daemon.home, work)
        if work.kind == "cancel":
            await asyncio.sleep(self._chance.uniform(0, 0.2))
            await self._once(work, "cancel", self._steer, "cancel")
        elif work.kind == "resume" and "again" not in work.done_steps:
            await self._ended(daemon, work)
            await self._once(work, "again", self._steer, "resume", f"say {work.key}-again")
        work.terminal, work.result = await self._ended(daemon, work)

    # -- writing -----------------------------------------------------------------------------------

    async def _begin(self, work: Work) -> None:
        if not work.was_said:
            work.was_said = True
            self._asks_at = time.monotonic() + _ASKS_AFTER_S
            verb = {"cancel": "slow", "resume": "say"}.get(work.kind, work.kind)
            asked = f"{self._command()} new {verb} {work.key}"
            is_made = work.kind == "make"
            self._since = await self._say(f"make {work.detail} {work.key}" if is_made else asked)
            self._commanded = 0 if is_made else self._since

    async def _steer(self, work: Work, verb: str, text: str = "") -> None:
        work.was_tried = True
        told = f"{self._command()} {verb} {work.task_id} {text}".rstrip()
        self._commanded = await self._say(told)

    def _command(self) -> str:
        return "/task" if self._place.thread is None else f"/task@{_BOT}"

    async def _say(self, text: str, reply_to: int | None = None) -> int:
        place = self._place
        return await self._people.say(
            place.chat, text, user=place.user, thread=place.thread, reply_to=reply_to
        )

    # -- reading -----------------------------------------------------------------------------------

    async def _until(self, daemon: DaemonProcess, look: Callable[[], Awaitable[T | None]]) -> T:
        """What ``look`` finds, once it does. Raises ``ConnectionError`` when this life of the daemon is
        over."""
        async with asyncio.timeout(_PATIENCE_S):
            while True:
                cursor = (await self._people.get("clock"))["cursor"]
                if (found := await look()) is not None:
                    return found
                if not daemon.is_running:
                    raise ConnectionError("this life of the daemon is over")
                await self._change(cursor)

    async def _change(self, cursor: int) -> None:
        """Something happened here after ``cursor``, or it is time to look all the same."""
        chat = self._place.chat
        await self._people.get("wait", after=cursor, chat=chat, timeout_s=_STEP_S)

    async def _shown(self, after: int) -> list[Json]:
        """What the bot has said after that message."""
        place = self._place
        records = await self._people.messages(place.chat, after=after, thread=place.thread)
        return [record["message"] for record in records if record["is_bot"]]

    async def _learnt(self, daemon: DaemonProcess, work: Work) -> str | None:
        """The task's id, as the chat tells it; empty where there will never be one."""
        shown = await self._shown(self._since)
        is_cut = await self._was_cut(daemon, shown)
        if is_cut or time.monotonic() > self._asks_at:
            # What was to tell of it is lost, or never came: one looks, and says it again if need be.
            self._asks_at = time.monotonic() + _ASKS_AFTER_S
            names = (f"{work.key}-in",) if work.kind == "make" else (f" {work.key}",)
            listed = (await daemon.get("/tasks/list?limit=500"))["tasks"]
            for each in listed:
                if each["name"].endswith(names):
                    return str(each["task_id"])
            is_dead = "SELECT 1 FROM messages WHERE state = 'dead' AND parts LIKE ?"
            if work.kind == "make" and daemon.sql(is_dead, (f'%"make {work.detail} {work.key}"%',)):
                work.terminal = "dead"  # tried too often: the oracle looks whether that is so
                return ""
            if is_cut:
                work.was_said = False
                await self._begin(work)
                return None
        for message in shown:
            text = message.get("text", "")
            found = re.search(r"task_[0-9][0-9a-z]+", text)
            if found and re.search(rf"\b{work.key}\b", text):
                return found[0]
        return None

    async def _was_cut(self, daemon: DaemonProcess, shown: list[Json]) -> bool:
        """Whether the latest command was begun and is over, in a chat where one was cut off: what it
        was to do is done by now, or never will be."""
        if not self._commanded or not daemon.is_running:
            return False
        is_told = any(_CUT in message.get("text", "") for message in shown)
        # Where neither that word arrived nor the note about it, one wonders why nothing happens.
        if not is_told and not daemon.sql(_CUT_UNHEARD, (self._place.conversation,)):
            return False
        is_over = (
            "SELECT 1 FROM received WHERE state = 'done' AND begun = 1"
            " AND raw ->> '$.message.chat.id' = ? AND raw ->> '$.message.message_id' = ?"
        )
        chat_id = int(self._place.conversation.partition("/")[0])
        return bool(daemon.sql(is_over, (chat_id, self._commanded)))

    async def _ended(self, daemon: DaemonProcess, work: Work) -> tuple[str, str]:
        if work.terminal:
            return work.terminal, work.result
        runs = 1 + ("again" in work.done_steps)

        async def look() -> tuple[str, str] | None:
            is_cut = await self._was_cut(daemon, await self._shown(self._since))
            found = await self._look(daemon, work)
            if found["state"] in ENDED and found["runs"] >= runs:
                return str(found["state"]), str(found["result"])
            if is_cut and found["runs"] < runs:
                await self._steer(work, "resume", f"say {work.key}-again")
            return None

        return await self._until(daemon, look)

    # -- pressing ----------------------------------------------------------------------------------

    async def attend(self, daemon: DaemonProcess) -> None:
        """Answer whatever asks in this place, as long as this life of the daemon lasts."""
        while daemon.is_running:
            cursor = (await self._people.get("clock"))["cursor"]
            await self._react(daemon)
            with contextlib.suppress(*GONE):
                await self._find_lost(daemon)
            await self._change(cursor)

    async def _react(self, daemon: DaemonProcess) -> None:
        """Answer what asks here, and have shown again what may not have arrived; each once."""
        for message in await self._shown(self._read):
            rows = message.get("reply_markup", {}).get("inline_keyboard", [])
            data = {each["text"]: each["callback_data"] for row in rows for each in row}
            one = next(iter(data.values()), "")
            if message["message_id"] <= self._read:
                continue  # somebody was quicker
            if one.startswith("q:") and "yes" not in data and not daemon.is_running:
                return  # what is asked about can't be looked up now
            self._read = message["message_id"]
            if one.startswith("again:"):
                await self._press(self._read, one)
            elif one.startswith("q:"):
                is_repeat = _REPEAT in message.get("text", "")
                await self._answer(daemon, self._read, data, is_repeat=is_repeat)

    async def _find_lost(self, daemon: DaemonProcess) -> None:
        """A question that may not have arrived, nor the note about it: an operator finds it among
        those that are open."""
        for row in daemon.sql(_LOST, (self._place.conversation,)):
            is_call = row["kind"] == "uncertain"
            said = self._works.decide(row["message_id"], self._chance) if is_call else "yes"
            answer = await daemon.post(f"/questions/{row['question_id']}/answer", {"answer": said})
            assert answer.status in {200, 409}, answer

    async def _answer(
        self, daemon: DaemonProcess, number: int, data: dict[str, str], *, is_repeat: bool
    ) -> None:
        question_id, said = next(iter(data.values())).split(":")[1], "yes"
        if question_id in self._answered and not is_repeat:
            return
        self._answered.add(question_id)
        if said not in data:
            asked = "SELECT message_id FROM questions WHERE question_id = ?"
            (row,) = daemon.sql(asked, (question_id,))
            said = self._works.decide(row["message_id"], self._chance)
        elif not is_repeat and self._chance.random() < 0.4:
            await self._say(said, reply_to=number)
            return
        await self._press(number, data[said])

    async def _press(self, number: int, data: str) -> None:
        try:
            await self._people.press(self._place.chat, number, data=data, user=self._place.user)
        except ControlRefused as error:
            if "no such button" not in str(error):
                raise
            # It was taken away while the finger came down.


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
        self._people, self.place = people, place
        self.texts: dict[str, str] = {}
        """What was written, with the answer that a turn without trouble gives."""

    async def live(self) -> None:
        """Write until cancelled."""
        while True:
            await self._pace.wait()
            key = f"{self._name}-{len(self.texts)}"
            kind = self._chance.choice(_OF_WRITERS)
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
            place = self.place
            await self._people.say(place.chat, text, user=place.user, thread=place.thread)
            await asyncio.sleep(self._chance.uniform(0.1, 0.8))
