"""The offset follows the sync (P1): seen from outside, in the daemon's system calls."""

import asyncio
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agentsup.testing.daemon_process import DaemonProcess, write_home
from agentsup.testing.telegram import TelegramDriver
from agentsup.testing.telegram_process import FakeTelegramProcess

pytestmark = [
    pytest.mark.process,
    pytest.mark.timeout(60),
    pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace"),
]

TOKEN = "7001:AAFmain" + "x" * 20
RULES: list[dict[str, Any]] = [{"match": r"say (\S+)", "steps": [{"say": "said $1"}]}]
CALLS = "fsync,fdatasync,sendto,sendmsg,write,writev,recvfrom,recvmsg,read"
TEXTS = 10


def steps(trace: str) -> list[tuple[str, int]]:
    """What counts, in order: ("heard", update id), ("synced", 0), ("confirmed", offset)."""
    found: list[tuple[str, int]] = []
    syncing: set[str] = set()
    for line in trace.splitlines():
        thread, _, call = line.partition(" ")
        if re.search(r"f(?:data)?sync\(.*state\.db", call) and "unfinished" in call:
            syncing.add(thread)
        elif re.search(r"f(?:data)?sync\(.*state\.db.*= 0", call) or (
            thread in syncing and re.search(r"f(?:data)?sync resumed.*= 0", call)
        ):
            syncing.discard(thread)
            found.append(("synced", 0))
        elif "TCP" in call:
            heard = re.findall(r"update_id\\*\": ?(\d+)", call)
            found += [("heard", int(each)) for each in heard]
            if "getUpdates" in call:
                offsets = re.findall(r"[?&]offset=(\d+)", call)
                found += [("confirmed", int(each)) for each in offsets]
    return found


def check(found: list[tuple[str, int]]) -> int:
    """Between hearing an update and confirming it there is a sync; how many were confirmed."""
    synced_after: dict[int, bool] = {}
    confirmed = 0
    for what, number in found:
        if what == "heard":
            synced_after.setdefault(number, False)
        elif what == "synced":
            synced_after = dict.fromkeys(synced_after, True)
        else:
            for update_id in [each for each in synced_after if each < number]:
                assert synced_after.pop(update_id), f"{update_id} confirmed before the sync"
                confirmed += 1
    return confirmed


async def test_an_offset_is_confirmed_only_after_the_sync(tmp_path: Path) -> None:
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
        async with DaemonProcess(home) as daemon:
            trace = tmp_path / "trace"
            tracer = subprocess.Popen(
                [
                    *("strace", "-f", "-yy", "-s", "6000", "-e", f"trace={CALLS}"),
                    *("-o", str(trace), "-p", str(daemon.pid)),
                ],
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            try:
                assert tracer.stderr is not None
                attached = await asyncio.to_thread(tracer.stderr.readline)
                if b"attached" not in attached:
                    pytest.skip(f"strace can't attach here: {attached!r}")
                for number in range(TEXTS):
                    await people.say(chat, f"say {number}")
                    if number % 5 == 4:
                        await people.wait_text(chat, "said", 20, after=0)
                await people.wait_text(chat, f"said {TEXTS - 1}", 45)
            finally:
                os.kill(tracer.pid, signal.SIGINT)
                await asyncio.to_thread(tracer.wait)
                assert tracer.stderr is not None
                tracer.stderr.close()
    found = steps(trace.read_text(errors="replace"))
    confirmed = check(found)
    assert confirmed >= TEXTS / 2, found[-20:]
    # The judge bites: without the syncs the same trace is refused.
    with pytest.raises(AssertionError, match="before the sync"):
        check([step for step in found if step[0] != "synced"])
