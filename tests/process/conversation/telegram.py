"""A person in Telegram: raw HTTP to the control plane of the fake Bot API server.

Beside the conversation it is checked that the bot kept the rules: no unknown field, no limit passed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

from agentsup.fakes.telegram import FakeTelegram, TelegramDriver
from tests.process.conversation.talker import (
    MAIN,
    WAIT_S,
    ConversationFixture,
    Heard,
    Question,
    heard_entities,
)
from tests.support.daemon_process import DaemonProcess, write_home

Json = dict[str, Any]
_SERVICE = ("forum_topic_created", "forum_topic_edited")


class TelegramTalker:
    """Implements ``Talker`` in a private chat, or in one topic of it."""

    def __init__(
        self, daemon: DaemonProcess, people: TelegramDriver, chat: str, thread: int | None = None
    ) -> None:
        self._daemon = daemon
        self._people = people
        self._chat = chat
        self._thread = thread
        self._heard = 0

    def _is_here(self, message: Mapping[str, Any]) -> bool:
        return bool((message.get("message_thread_id") or 0) == (self._thread or 0))

    def _said(self, view: Json) -> list[Json]:
        """Messages of the bot after what was heard."""
        return [
            record["message"]
            for record in view["messages"]
            if record["is_bot"]
            and record["message_id"] > self._heard
            and self._is_here(record["message"])
            and not any(name in record["message"] for name in _SERVICE)
        ]

    async def _next(self, fits: Callable[[Json], bool], timeout_s: float) -> Json:
        def look(view: Json) -> Json | None:
            return next((one for one in self._said(view) if fits(one)), None)

        found: Json = await self._people.wait_for(self._chat, look, timeout_s)
        self._heard = found["message_id"]
        return found

    async def _settled(self, part: str, timeout_s: float) -> None:
        """Until the daemon knows that it sent the question.

        A reply that is there sooner is an ordinary text to it; no person is quick enough for that.
        """
        async with (
            asyncio.timeout(timeout_s),
            aclosing(self._daemon.events(after=0, types="chat.out")) as events,
        ):
            async for event in events:
                if part in str(event.get("data", {}).get("text", "")):
                    return

    # -- Talker ------------------------------------------------------------------------------------

    async def say(self, text: str) -> str:
        return str(await self._people.say(self._chat, text, thread=self._thread))

    async def correct(self, said: str, text: str) -> None:
        await self._people.edit(self._chat, int(said), text)

    async def hears(self, part: str, timeout_s: float = WAIT_S) -> Heard:
        def look(view: Json) -> list[Json] | None:
            messages: list[Json] = []
            for message in self._said(view):
                messages.append(message)
                if part in str(message.get("text", message.get("caption", ""))):
                    return messages
            return None

        found: list[Json] = await self._people.wait_for(self._chat, look, timeout_s)
        self._heard = found[-1]["message_id"]
        return heard_entities(found)

    async def sees(self, part: str, timeout_s: float = WAIT_S) -> None:
        def look(view: Json) -> bool:
            written = [one["text"] for one in view["drafts"] if self._is_here(one)]
            return any(part in text for text in written) or any(
                part in message.get("text", "") for message in self._said(view)
            )

        await self._people.wait_for(self._chat, look, timeout_s)

    async def send_file(self, name: str, data: bytes, text: str) -> None:
        await self._people.send_file(self._chat, data, name=name, caption=text, thread=self._thread)

    async def file(self, timeout_s: float = WAIT_S) -> tuple[str, bytes]:
        document = (await self._next(lambda one: "document" in one, timeout_s))["document"]
        return document["file_name"], await self._people.download(document["file_unique_id"])

    async def question(self, part: str, timeout_s: float = WAIT_S) -> Question:
        message = await self._next(lambda one: part in one.get("text", ""), timeout_s)
        await self._settled(part, timeout_s)
        rows = message.get("reply_markup", {}).get("inline_keyboard", [])
        options = tuple(button["text"] for row in rows for button in row)
        return Question(message["text"], options, message["message_id"])

    async def press(self, question: Question, option: str) -> None:
        pressed = await self._people.press(self._chat, question.handle, text=option)
        await self._people.pressed(pressed)

    async def type_answer(self, question: Question, text: str) -> None:
        await self._people.say(self._chat, text, thread=self._thread, reply_to=question.handle)

    async def aside(self, name: str) -> TelegramTalker:
        thread = await self._people.topic(self._chat, name)
        return TelegramTalker(self._daemon, self._people, self._chat, thread)

    async def come_back(self) -> None:
        """Nothing: Telegram keeps the chat."""

    async def transcript(self) -> list[str]:
        return [
            record["message"].get("text", record["message"].get("caption", ""))
            for record in await self._people.messages(self._chat)
            if record["is_bot"] and self._is_here(record["message"])
        ]


@asynccontextmanager
async def telegram_stage(
    root: Path, rules: Sequence[Mapping[str, Any]]
) -> AsyncIterator[ConversationFixture]:
    """A daemon whose ``main`` has a bot at the fake, and a person it knows."""
    async with (
        FakeTelegram(root / "telegram") as fake,
        TelegramDriver(fake.url) as people,
    ):
        bot = fake.bot(username="main_bot", name="Main", has_topics_enabled=True)
        ann = await people.user("Ann")
        chat = await people.private(ann, bot.bot_id)
        entry = {
            **MAIN,
            "telegram_token": bot.token,
            "telegram_base_url": fake.url,
            "allowed_user_ids": [ann],
        }
        home = write_home(root / "home", [entry], rules)
        async with DaemonProcess(home) as daemon:
            yield ConversationFixture(daemon, TelegramTalker(daemon, people, chat))
            assert await people.violations() == []
            report = await people.report()
            assert report["exceeded"] == [], json.dumps(report)
            assert bot.token not in daemon.output.read_text(), "the token is in a log"
