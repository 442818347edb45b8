"""The offset follows the sync (P1): seen from outside, in the daemon's system calls."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agentsup.fakes.telegram import TelegramDriver
from tests.process.sync_trace import HAS_STRACE, Step, Tracer, judge, steps
from tests.support.bound import BOUND_S
from tests.support.daemon_process import DaemonProcess, write_home
from tests.support.telegram_process import FakeTelegramProcess

pytestmark = [
    pytest.mark.process,
    pytest.mark.timeout(180),
]
needs_strace = pytest.mark.skipif(not HAS_STRACE, reason="needs strace")

TOKEN = "7001:AAFmain" + "x" * 20
RULES: list[dict[str, Any]] = [{"match": r"say (\S+)", "steps": [{"say": "said $1"}]}]
TEXTS = 10
AS_IT_IS = ("-m", "agentsup")
LEADING_MAIN = """
import sys
from agentsup.channels.telegram.poll import Poller

def leading(keep):
    async def early(self, updates):
        if updates:
            offset = max(update["update_id"] for update in updates) + 1
            await self._client.call("getUpdates", timeout=0, limit=1, offset=offset)
        return await keep(self, updates)
    return early

Poller._keep = leading(Poller._keep)
from agentsup.cli.main import main
sys.exit(main())
"""
LEADING = ("-c", LEADING_MAIN)
"""A daemon that confirms what it has heard, and keeps it then."""


async def traced(tmp_path: Path, texts: int, command: Sequence[str] = AS_IT_IS) -> list[Step]:
    """Some texts to a daemon, and what its system calls say, from its first second on."""
    async with (
        FakeTelegramProcess(tmp_path / "fake") as fake,
        TelegramDriver(fake.url) as people,
    ):
        bot = await people.add_bot(TOKEN, username="main_bot")
        ann = await people.user("Ann")
        chat = await people.private(ann, bot)
        entry = {
            "name": "main",
            "telegram_token": TOKEN,
            "telegram_base_url": fake.url,
            "allowed_user_ids": [ann],
        }
        home = write_home(tmp_path / "home", [entry], RULES)
        daemon = DaemonProcess(home, command=command)
        try:
            daemon.launch()
            async with Tracer(daemon.pid, tmp_path / "trace") as tracer:
                if tracer.why_not:
                    pytest.skip(f"strace can't attach here: {tracer.why_not}")
                await daemon.ready()
                for number in range(texts):
                    await people.say(chat, f"say {number}")
                    if number % 5 == 4:
                        await people.wait_text(chat, "said", BOUND_S, after=0)
                await people.wait_text(chat, f"said {texts - 1}", 45)
            return await tracer.steps()
        finally:
            await daemon.close()


@needs_strace
async def test_an_offset_is_confirmed_only_after_the_sync(tmp_path: Path) -> None:
    found = await traced(tmp_path, TEXTS)
    confirmed = judge(found)
    assert confirmed >= TEXTS / 2, found[-20:]
    # The judge bites: without the syncs the same trace is refused, and without the writes.
    with pytest.raises(AssertionError, match="before any sync"):
        judge([step for step in found if step[0] != "synced"])
    with pytest.raises(AssertionError, match="was never written"):
        judge([step for step in found if step[0] != "kept"])


@needs_strace
async def test_an_offset_that_leads_is_seen(tmp_path: Path) -> None:
    found = await traced(tmp_path, 2, LEADING)
    with pytest.raises(AssertionError, match=r"was never written|before the sync"):
        judge(found)


WAL = "7</home/state.db-wal>"
SENT = r"sendto(9<TCP:[127.0.0.1:1->127.0.0.1:2]>, \"POST /bot7/getUpdates ... offset={}\""


def page(number: int) -> str:
    return rf'pwrite64({WAL}, "\5\0{{\"update_id\":{number},\"message\"", 4096, 56) = 4096'


def asked(offset: int) -> str:
    return SENT.format(offset) + ", 200, 0, NULL, 0) = 200"


@pytest.mark.parametrize(
    "lines, confirmed",
    [
        ([f"1 {page(5)}", f"1 fdatasync({WAL}) = 0", f"2 {asked(6)}"], 1),
        ([f"1 {page(5)}", f"2 {asked(6)}", f"1 fdatasync({WAL}) = 0"], None),
        ([f"1 fdatasync({WAL}) = 0", f"1 {page(5)}", f"2 {asked(6)}"], None),
        # A sync that began before the write says nothing about it.
        (
            [
                f"3 fdatasync({WAL} <unfinished ...>",
                f"1 {page(5)}",
                "3 <... fdatasync resumed>) = 0",
                f"2 {asked(6)}",
            ],
            None,
        ),
        (
            [
                f"1 {page(5)}",
                f"1 fdatasync({WAL} <unfinished ...>",
                f"2 {asked(6)}",
                "1 <... fdatasync resumed>) = 0",
            ],
            None,
        ),
        ([f"1 {page(5)}", f"1 fdatasync({WAL}) = -1 EIO", f"2 {asked(6)}"], None),
        ([f"1 {page(5)}", "1 fdatasync(8</home/other>) = 0", f"2 {asked(6)}"], None),
        # Of two only the first was there at the sync.
        ([f"1 {page(5)}", f"1 fdatasync({WAL}) = 0", f"1 {page(6)}", f"2 {asked(7)}"], None),
    ],
)
def test_what_the_judge_says(lines: list[str], confirmed: int | None) -> None:
    found = steps("\n".join([f"2 {asked(0)}", *lines]))
    if confirmed is None:
        with pytest.raises(AssertionError, match="sync"):
            judge(found)
    else:
        assert judge(found) == confirmed


def test_what_an_earlier_life_kept_needs_a_sync_of_this_one() -> None:
    assert judge(steps(f"1 fdatasync({WAL}) = 0\n2 {asked(6)}")) == 0
    with pytest.raises(AssertionError, match="before any sync"):
        judge(steps(f"2 {asked(6)}"))
