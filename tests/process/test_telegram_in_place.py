"""SIGKILL between an answer that took its streamed message's place and the record of it (P2)."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from agentsup.fakes.telegram import TelegramDriver
from tests.support.bound import BOUND_S
from tests.support.daemon_process import DaemonProcess, write_home
from tests.support.preloaded_process import WITH_TELEGRAM
from tests.support.telegram_process import FakeTelegramProcess

pytestmark = pytest.mark.process

TOKEN = "7002:AAFmain" + "x" * 20
RULES: list[dict[str, Any]] = [
    {
        "match": ".*tell.*",
        "steps": [{"say": "Once upon a time "}, {"sleep": 2.0}, {"say": "there was a cat."}],
    }
]
ANSWER = "Once upon a time there was a cat."


@pytest.mark.timeout(180)  # two lives of a real daemon
async def test_an_answer_killed_after_it_took_its_place_is_there_once_and_in_no_doubt(
    tmp_path: Path,
) -> None:
    async with FakeTelegramProcess(tmp_path / "fake") as fake, TelegramDriver(fake.url) as people:
        bot = await people.add_bot(TOKEN, username="main_bot")
        ann = await people.user("Ann")
        group = await people.group("Home", [ann, bot], administrators=[ann])
        entry = {
            "name": "main",
            "telegram_token": TOKEN,
            "telegram_base_url": fake.url,
            "allowed_user_ids": [ann],
            "allowed_group_ids": [int(group)],
            "streaming": {"mode": "live", "edit_interval_s": 0.5, "min_chars": 4},
        }
        daemon = DaemonProcess(write_home(tmp_path / "home", [entry], RULES), loaded=WITH_TELEGRAM)
        try:
            daemon.launch(AGENTSUP_FAULT="outbox.after_deliver:1")
            await daemon.ready()
            await people.say(group, "@main_bot tell me", user=ann)
            await people.wait_text(group, "Once upon a time")
            assert await daemon.ended(BOUND_S) == -signal.SIGKILL, daemon.tail()
            await daemon.start()
            async with asyncio.timeout(BOUND_S):
                while daemon.sql("SELECT 1 FROM outbox WHERE state = 'pending'"):
                    await asyncio.sleep(0.05)
                while daemon.sql("SELECT 1 FROM placeholders"):
                    await asyncio.sleep(0.05)
            found = daemon.sql("SELECT state, kind, platform_ids FROM outbox")
            records = [one for one in await people.messages(group) if one["is_bot"]]
        finally:
            await daemon.close()
    assert [one["message"]["text"] for one in records] == [ANSWER]
    (part,) = found
    assert (part["state"], part["kind"]) == ("delivered", "answer")
    assert json.loads(part["platform_ids"]) == [str(records[0]["message_id"])]
