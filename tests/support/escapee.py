"""A program that wants to outlive its turn: it leaves its group, its session and its environment.

Run the file itself, with nothing of agentsup imported: ``python escapee.py TAG WAY [WAY …]``. Each
way is one process that forks twice, calls ``setsid`` and executes this file anew with an empty
environment (``marked``: with its own); ``escaped`` finds what of them lives by the TAG in their
command lines. The program itself then goes on in its way: ``then:exit``, ``then:wait`` (the
default) or ``then:mcp``. All ends by itself after a minute.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

LIFE_S = 60.0
PROGRAM = (sys.executable, "-S", "-E", __file__)
"""What to run, before the tag."""


def escaped(tag: str, *ways: str) -> list[int]:
    """Living processes that left under ``tag``, in one of these ``ways`` where some are named."""
    wanted = {way.encode() for way in ways}
    found = []
    for place in Path("/proc").glob("[0-9]*"):  # below them it would raise for one that ends
        cmdline = place / "cmdline"
        try:
            words = cmdline.read_bytes().split(b"\0")
            state = (
                (cmdline.parent / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
            )
        except OSError:
            continue
        is_wanted = not wanted or wanted & set(words)
        if tag.encode() in words and b"away" in words and is_wanted and state not in "ZX":
            found.append(int(place.name))
    return found


def _leave(tag: str, way: str) -> None:
    middle = os.fork()
    if middle:
        os.waitpid(middle, 0)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    environment = dict(os.environ) if way.startswith("marked") else {}
    argv = [*PROGRAM, tag, "away", way]
    os.execve(sys.executable, argv, environment)


def _be_away(way: str) -> None:
    end = time.monotonic() + LIFE_S
    if way == "closed":
        os.closerange(0, 4096)
    if way.endswith("eat"):
        kept = [os.urandom(1024 * 1024) for _ in range(120)]
        assert kept
    while time.monotonic() < end:
        if way == "hop":
            # Another process each time, in a session of its own.
            if os.fork():
                os._exit(0)
            os.setsid()
        else:
            time.sleep(1)


def _linger(tag: str, way: str) -> None:
    """A child that hides, but for its parent: whoever looks while that one lives knows whose it is."""
    if os.fork():
        return
    os.setsid()
    argv = [*PROGRAM, tag, "away", way]
    os.execve(sys.executable, argv, {})


def _serve() -> None:
    """The least of a tool server over MCP."""
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" not in asked:
            continue
        result: dict[str, object] = {}
        if asked["method"] == "initialize":
            result = {
                "protocolVersion": asked["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "escapee", "version": "1"},
            }
        elif asked["method"] == "tools/list":
            result = {"tools": []}
        _say(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(tag: str, *ways: str) -> None:
    """Be one that is away, or have the ``ways`` leave."""
    if ways[0] == "away":
        _be_away(ways[1])
        return
    for way in ways:
        if way.startswith("linked"):
            _linger(tag, way)
        elif not way.startswith("then:"):
            _leave(tag, way)
    if "then:mcp" in ways:
        _serve()
    else:
        _say("they are away")
        if "then:exit" not in ways:
            time.sleep(LIFE_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
