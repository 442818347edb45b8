"""P5 against programs that hide: they fork twice, take a session of their own, and empty their
environment, so that nothing on them says whose they are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.process.conftest import MakeDaemon
from tests.support.bound import BOUND_S
from tests.support.escapee import PROGRAM, escaped
from tests.support.preloaded_process import DAEMON

pytestmark = pytest.mark.process

HIDDEN = ("hide", "hop", "closed")


def rule(word: str, *ways: str) -> dict[str, Any]:
    call = {"name": "exec", "args": {"argv": [*PROGRAM, "$1", *ways]}}
    return {"match": f"{word} (.*)", "steps": [{"tool": call}, {"say": "$result"}]}


RULES = [
    rule("leave", *HIDDEN, "marked", "linked", "then:exit"),
    rule("stay", *HIDDEN, "marked", "linked"),
]
RUNS = {"tools": ["exec"], "permission_mode": "bypassPermissions"}


async def until(look: Callable[[], object], within_s: float = BOUND_S) -> None:
    async with asyncio.timeout(within_s):
        while not look():
            await asyncio.sleep(0.02)


@pytest.mark.timeout(180)
async def test_who_hides_outlives_nothing(make_daemon: MakeDaemon, tmp_path: Path) -> None:
    def tag(name: str) -> str:
        return f"{name}.{tmp_path}"

    engine = [*PROGRAM, tag("engine"), *HIDDEN, "linked", "then:exit"]
    server = [*PROGRAM, tag("server"), *HIDDEN, "linked", "then:mcp"]
    daemon = make_daemon(
        [
            {"name": "main"},
            {"name": "ann", **RUNS},
            {"name": "bob", **RUNS},
            {
                "name": "cid",
                "engine": "command",
                "engine_options": {"command": engine, "output": "text"},
            },
            {"name": "dan", "mcp": {"proof": {"command": server[0], "args": server[1:]}}},
        ],
        RULES,
        "[limits]\ndrain_s = 0.2\n",
        loaded=DAEMON,
    )
    await daemon.start()

    async def stopped(name: str) -> None:
        assert (await daemon.post(f"/agents/{name}/stop")).status == 200
        async with asyncio.timeout(BOUND_S):
            while (await daemon.agents())[name]["status"] != "stopped":
                await asyncio.sleep(0.02)

    # The end of a call by exec, and of a turn whose engine is a program.
    said = await daemon.result(await daemon.send("ann", f"leave {tag('exec')}"), wait_s=BOUND_S)
    assert "they are away" in said["text"]
    assert escaped(tag("exec")) == []
    said = await daemon.result(await daemon.send("cid", "go"), wait_s=BOUND_S)
    assert "they are away" in said["text"]
    assert escaped(tag("engine")) == []

    # Those that are known to belong to a running turn, or to a tool server, are left to it. So may one
    # be that was seen before its parents were gone; the others are killed within a second.
    for name in ("ann", "bob"):
        await daemon.send(name, f"stay {tag(name)}")
    for name in ("ann", "bob"):
        await until(lambda name=name: len(escaped(tag(name), "marked", "linked")) == 2)  # type: ignore[misc]
    await until(lambda: escaped(tag("server"), "linked"))
    theirs = escaped(tag("bob"), "marked", "linked")

    # The stop of an agent ends its own, everybody's stop those of all turns.
    await stopped("ann")
    assert escaped(tag("ann")) == []
    assert escaped(tag("bob"), "marked", "linked") == theirs
    assert (await daemon.post("/stop_all")).body["running"] == 1
    assert escaped(tag("bob")) == []
    assert escaped(tag("server"), "linked"), "a tool server stays up"
    await stopped("dan")
    assert escaped(tag("server")) == []

    # A kill of the daemon: what had left its group for a moment is on record.
    await daemon.send("bob", f"stay {tag('killed')}")
    await until(lambda: len(escaped(tag("killed"), "linked")) == 1)
    (linked,) = escaped(tag("killed"), "linked")
    await until(lambda: linked in {row["pid"] for row in daemon.sql("SELECT pid FROM strays")})
    daemon.kill()
    await daemon.ended()
    assert linked in escaped(tag("killed"))
    await daemon.start()
    assert escaped(tag("killed")) == []
    assert await daemon.stop() == 0
