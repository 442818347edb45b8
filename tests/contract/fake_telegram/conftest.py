"""A running fake with one bot, one person and their private chat."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agentsup.fakes.telegram import Bot, FakeTelegram, TelegramDriver


@dataclass(frozen=True, slots=True)
class FakeTelegramFixture:
    """What most tests need; ``call`` is a bot method over raw HTTP."""

    fake: FakeTelegram
    people: TelegramDriver
    bot: Bot
    ann: int
    chat: str

    async def call(self, method: str, **fields: Any) -> dict[str, Any]:
        return await self.people.call(self.bot.token, method, **fields)

    async def send(self, text: str, **fields: Any) -> dict[str, Any]:
        return await self.call("sendMessage", chat_id=self.ann, text=text, **fields)

    async def refusal(self, method: str, **fields: Any) -> tuple[int, str]:
        answer = await self.call(method, **fields)
        assert not answer["ok"], answer
        assert answer["status"] == answer["error_code"]
        return answer["error_code"], answer["description"]

    async def updates(self, **fields: Any) -> list[dict[str, Any]]:
        answer = await self.call("getUpdates", **fields)
        assert answer["ok"], answer
        result: list[dict[str, Any]] = answer["result"]
        return result


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[FakeTelegramFixture]:
    async with FakeTelegram(tmp_path / "fake") as fake, TelegramDriver(fake.url) as people:
        bot = fake.bot(username="helper_bot", name="Helper")
        ann = await people.user("Ann")
        chat = await people.private(ann, bot.bot_id)
        yield FakeTelegramFixture(fake, people, bot, ann, chat)
