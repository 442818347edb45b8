"""A model behind HTTP, streamed to a phone: words are seen before the model has ended."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agentsup.fakes.telegram import TelegramDriver
from tests.support.bound import BOUND_S
from tests.support.daemon_process import DaemonProcess, write_home
from tests.support.model_server import Asked, ModelServer, Reply
from tests.support.telegram_process import FakeTelegramProcess

TOKEN = "7101:AAF" + "x" * 27


def endless(_: Asked) -> Reply:
    """Says a few words and never its last."""
    return Reply(("The first words", " of an answer", " that never ends"), hang_after=2)


@pytest.mark.process
@pytest.mark.timeout(180)
async def test_the_first_words_are_seen_while_the_model_still_speaks(tmp_path: Path) -> None:
    async with (
        FakeTelegramProcess(tmp_path / "fake") as fake,
        TelegramDriver(fake.url) as people,
        ModelServer(endless) as server,
    ):
        bot = await people.add_bot(TOKEN, username="main_bot")
        ann = await people.user("Ann")
        chat = await people.private(ann, bot)
        main = {
            "name": "main",
            "engine": "llm",
            "model": "loopback-1",
            "engine_options": {
                "base_url": server.base_url,
                "api_key": "sk-loopback-0123456789",
                "template_opens_thought": False,
            },
            "telegram_token": TOKEN,
            "telegram_base_url": fake.url,
            "allowed_user_ids": [ann],
            "streaming": {"drafts": True},
        }
        async with DaemonProcess(write_home(tmp_path / "home", [main])) as daemon:
            await daemon.until("main", "running", warnings=[], timeout_s=BOUND_S)
            said = await people.say(chat, "tell me")
            await people.wait_for(
                chat,
                lambda view: any("The first words" in d["texts"][-1] for d in view["drafts"]),
                15.0,
            )
            lines = await people.messages(chat)
            assert not any(line["is_bot"] for line in lines), "the answer is not final yet"
            await server.wait_asked(1)
            assert server.disconnects == 0, "the model is still being listened to"
            await people.say(chat, "/stop")
            await people.wait_text(chat, "top", BOUND_S, after=said)
            await server.wait_disconnects(1)


def busy(_: Asked) -> Reply:
    """Wants a long pause, whoever asks."""
    return Reply(status=429, headers=(("retry-after", "600"),))


@pytest.mark.process
@pytest.mark.timeout(180)
async def test_who_waits_for_the_provider_is_told_on_the_phone_once(tmp_path: Path) -> None:
    async with (
        FakeTelegramProcess(tmp_path / "fake") as fake,
        TelegramDriver(fake.url) as people,
        ModelServer(busy) as server,
    ):
        bot = await people.add_bot(TOKEN, username="main_bot")
        ann = await people.user("Ann")
        chat = await people.private(ann, bot)
        main = {
            "name": "main",
            "engine": "llm",
            "model": "loopback-1",
            "engine_options": {
                "base_url": server.base_url,
                "api_key": "sk-loopback-0123456789",
                "template_opens_thought": False,
            },
            "telegram_token": TOKEN,
            "telegram_base_url": fake.url,
            "allowed_user_ids": [ann],
        }
        async with DaemonProcess(write_home(tmp_path / "home", [main])) as daemon:
            await daemon.until("main", "running", warnings=[], timeout_s=BOUND_S)
            said = await people.say(chat, "tell me")
            await people.wait_text(
                chat, "tried again by itself in about 10 min", BOUND_S, after=said
            )
            # A kill before its delivery is noted would leave it in doubt, and tell that, too.
            async with asyncio.timeout(BOUND_S):
                while daemon.sql("SELECT 1 FROM outbox WHERE state = 'pending'"):
                    await asyncio.sleep(0.02)
            daemon.kill()
            await daemon.ended()
            await daemon.start()
            await daemon.until("main", "running", warnings=[], timeout_s=BOUND_S)
            stop = await people.say(chat, "/stop")
            await people.wait_text(chat, "top", BOUND_S, after=stop)
            lines = await people.messages(chat)
            assert sum("tried again by itself" in str(line) for line in lines) == 1
            assert len(server.asked) == 1
