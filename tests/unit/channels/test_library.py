"""The library comes late, whole, and without what nobody needs."""

from __future__ import annotations

import subprocess
import sys

CHILD = """
import asyncio, gc, sys
import agentsup.channels.telegram.deliver, agentsup.channels.telegram.client
assert "telegram" not in sys.modules, "a daemon without a bot pays for the library"
from agentsup.channels.telegram.client import library
async def main():
    loading = asyncio.create_task(library())
    while "agentsup.channels.telegram.request" not in sys.modules:
        await asyncio.sleep(0.001)
    first = await library()
    assert first.form_of({"a": 1, "b": None}) == {"a": "1"}
    assert first is await loading
asyncio.run(main())
assert gc.isenabled()
print(*sorted({"httpx", "cryptography", "telegram._bot", "telegram.ext"} & set(sys.modules)))
import telegram, telegram.request
assert issubclass(telegram.request.HTTPXRequest, telegram.request.BaseRequest)
assert telegram.Bot("1:a").token == "1:a", "the rest comes when it is asked for"
"""


def test_the_library_is_loaded_on_demand_and_lean() -> None:
    command = [sys.executable, "-W", "error", "-c", CHILD]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=18)
    assert done.stderr == ""
    assert done.stdout.split() == []
