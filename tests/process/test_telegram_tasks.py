"""Tasks in Telegram: begun in a topic, looked at in place, answered after SIGKILL, told where begun."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from agentsup.channels.telegram.live_cards import PAUSE_S
from agentsup.fakes.telegram import TelegramDriver
from tests.support.daemon_process import DaemonProcess, write_home
from tests.support.preloaded_process import WITH_TELEGRAM
from tests.support.telegram_process import FakeTelegramProcess

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

TOKEN = "7002:AAFmain" + "x" * 20
RULES: list[dict[str, Any]] = [
    {
        "match": "which way.*",
        "steps": [
            {"question": {"text": "Sea or hills?", "options": ["sea", "hills"]}},
            {"say": "To the $result."},
        ],
    },
    {"match": "sleep.*", "steps": [{"sleep": 60}]},
    {"match": "(.+)", "steps": [{"say": "did $1"}]},
]


def buttons(message: dict[str, Any]) -> dict[str, str]:
    """Label to data of what hangs below a message."""
    rows = message.get("reply_markup", {}).get("inline_keyboard", [])
    return {one["text"]: one["callback_data"] for row in rows for one in row}


class Topic:
    """One topic of a forum, as Ann sees it."""

    def __init__(self, people: TelegramDriver, group: str, thread: int, ann: int) -> None:
        self.people, self.group, self.thread, self.ann = people, group, thread, ann

    async def say(self, text: str) -> int:
        return await self.people.say(self.group, text, user=self.ann, thread=self.thread)

    async def sees(self, part: str, *, after: int = 0) -> dict[str, Any]:
        """The bot's first message with that text, which must stand in this topic."""
        record = await self.people.wait_message(
            self.group, lambda one: part in one.get("text", ""), 15.0, after=after
        )
        message: dict[str, Any] = record["message"]
        assert message["message_thread_id"] == self.thread
        return message

    async def press(self, message: dict[str, Any], label: str) -> dict[str, Any]:
        data = buttons(message)[label]
        number = message["message_id"]
        query = await self.people.press(self.group, number, data=data, user=self.ann)
        return await self.people.pressed(query)

    async def count(self) -> int:
        records = await self.people.messages(self.group)
        return sum(record["is_bot"] for record in records)


async def test_a_task_of_a_topic_lives_there(tmp_path: Path) -> None:
    async with FakeTelegramProcess(tmp_path / "fake") as fake, TelegramDriver(fake.url) as people:
        bot = await people.add_bot(TOKEN, username="main_bot")
        ann = await people.user("Ann")
        group = await people.group("Home", [ann, bot], administrators=[ann, bot], forum=True)
        topic = Topic(people, group, await people.topic(group, "Trips", user=ann), ann)
        entry = {
            "name": "main",
            "telegram_token": TOKEN,
            "telegram_base_url": fake.url,
            "allowed_user_ids": [ann],
            "allowed_group_ids": [int(group)],
        }
        daemon = DaemonProcess(write_home(tmp_path / "home", [entry], RULES), loaded=WITH_TELEGRAM)
        try:
            daemon.launch()
            await daemon.ready()
            said = await topic.say("/task@main_bot new which way to go")
            begun = await topic.sees("Task created", after=said)
            found = re.search(r"id: (task_\w+)", begun["text"])
            assert found is not None
            asked = await topic.sees("Sea or hills?", after=said)

            # The card that is there is refreshed in its place.
            before = await topic.count()
            await topic.press(begun, "↻")
            card = await topic.sees("Asks: Sea or hills? [sea | hills]")
            assert card["message_id"] == begun["message_id"]
            assert {"sea", "hills", "Cancel", "↻"} <= set(buttons(card))
            await topic.press(card, "‹ Tasks")
            listed = await topic.sees("/task ID shows one")
            assert listed["message_id"] == begun["message_id"]
            assert await topic.count() == before, "nothing was said beside it"

            daemon.kill()
            await daemon.ended()
            await daemon.start()
            assert "hills" in str(buttons(asked)), "the button of the life before"
            await topic.press(asked, "hills")
            told = await topic.sees("To the hills.", after=said)
            assert "To the hills." in told["text"]
            (row,) = daemon.sql("SELECT state, runs FROM tasks")
            assert (row["state"], row["runs"]) == ("done", 1)
            # The press before the kill may have been handled again, with a keyboard of its own.
            listed = await topic.sees("/task ID shows one")
            await topic.press(
                listed, next(label for label in buttons(listed) if "which way" in label)
            )
            card = await topic.sees("Result:\nTo the hills.")
            assert card["message_id"] == begun["message_id"]
            assert {"Run again", "Delete"} <= set(buttons(card))

            said = await topic.say("/task@main_bot new sleep long")
            begun = await topic.sees("sleep long", after=said)
            await topic.press(begun, "Cancel")
            sure = await topic.sees("Cancel “sleep long”?")
            await topic.press(sure, "Yes: Cancel")
            ended = await topic.sees("Cancelled.", after=said)
            assert ended["message_id"] == begun["message_id"]
            states = daemon.sql("SELECT state FROM tasks ORDER BY task_id")
            assert [row["state"] for row in states] == ["done", "cancelled"]
        finally:
            await daemon.close()


async def test_a_card_follows_its_task_in_place(tmp_path: Path) -> None:
    """Without a press, over SIGKILL, and never over what a press has put there since."""
    async with FakeTelegramProcess(tmp_path / "fake") as fake, TelegramDriver(fake.url) as people:
        bot = await people.add_bot(TOKEN, username="main_bot")
        ann = await people.user("Ann")
        group = await people.group("Home", [ann, bot], administrators=[ann, bot], forum=True)
        topic = Topic(people, group, await people.topic(group, "Trips", user=ann), ann)
        entry = {
            "name": "main",
            "telegram_token": TOKEN,
            "telegram_base_url": fake.url,
            "allowed_user_ids": [ann],
            "allowed_group_ids": [int(group)],
        }
        daemon = DaemonProcess(write_home(tmp_path / "home", [entry], RULES), loaded=WITH_TELEGRAM)
        try:
            daemon.launch()
            await daemon.ready()
            said = await topic.say("/task@main_bot new which way to go")
            begun = await topic.sees("Task created", after=said)
            asked = await topic.sees("Sea or hills?", after=said)
            card = await topic.sees("Asks: Sea or hills?", after=said)
            assert card["message_id"] == begun["message_id"], "it came to show it by itself"
            assert "hills" in buttons(card)

            daemon.kill()
            await daemon.ended()
            await daemon.start()
            await topic.press(asked, "hills")
            card = await topic.sees("Result:\nTo the hills.", after=said)
            assert card["message_id"] == begun["message_id"], "in the next life too"
            assert "Run again" in buttons(card)

            await topic.press(card, "‹ Tasks")
            listed = await topic.sees("/task ID shows one", after=said)
            assert listed["message_id"] == begun["message_id"]
            (row,) = daemon.sql("SELECT task_id FROM tasks")
            again = {"task_id": row["task_id"], "prompt": "something else"}
            assert (await daemon.post("/tasks/resume", again)).status == 200
            told = await topic.sees("did something else", after=said)
            await asyncio.sleep(PAUSE_S + 1)  # what would follow wrongly has followed by then
            records = await people.messages(group)
            texts = {one["message"]["message_id"]: one["message"].get("text") for one in records}
            assert texts[begun["message_id"]] == listed["text"], "a list stays what it is"
            assert texts[told["message_id"]].splitlines()[-1] == "did something else"
        finally:
            await daemon.close()


async def test_a_stop_leaves_what_the_agent_has_begun_in_the_background(tmp_path: Path) -> None:
    """It names the run, with a button that ends it; after SIGKILL the run's result comes all the
    same."""
    spawn = {"name": "agent_spawn", "args": {"instruction": "which way to go", "agent": "ben"}}
    ours = [
        {"match": "begin.*", "steps": [{"tool": spawn}, {"say": "begun"}]},
        {"match": ".*To the (hills|sea).*", "steps": [{"say": "ben says: $1"}]},
    ]
    async with FakeTelegramProcess(tmp_path / "fake") as fake, TelegramDriver(fake.url) as people:
        bot = await people.add_bot(TOKEN, username="main_bot")
        ann = await people.user("Ann")
        group = await people.group("Home", [ann, bot], administrators=[ann, bot], forum=True)
        topic = Topic(people, group, await people.topic(group, "Trips", user=ann), ann)
        main = {
            "name": "main",
            "telegram_token": TOKEN,
            "telegram_base_url": fake.url,
            "allowed_user_ids": [ann],
            "allowed_group_ids": [int(group)],
            "group_mention_only": False,
            "tools": ["*", "agent_spawn"],
            "engine": "scripted",
            "engine_options": {"rules": ours},
        }
        home = write_home(tmp_path / "home", [main, {"name": "ben"}], RULES)
        async with DaemonProcess(home, loaded=WITH_TELEGRAM) as daemon:
            said = await topic.say("begin")
            await topic.sees("begun", after=said)
            asked = await topic.sees("Sea or hills?", after=said)
            said = await topic.say("/stop@main_bot")
            stopped = await topic.sees("Nothing was running", after=said)
            (run,) = daemon.sql("SELECT run_id FROM runs")
            assert run["run_id"][-8:] in stopped["text"], "the work that goes on is named"
            assert any(label.startswith("✖") for label in buttons(stopped)), stopped
            daemon.kill()
            await daemon.ended()
            await daemon.start()
            await topic.press(asked, "hills")
            await topic.sees("ben says: hills", after=said)
            (row,) = daemon.sql("SELECT state, outcome FROM messages WHERE kind = 'task'")
            assert (row["state"], row["outcome"]) == ("done", "ok")
