"""P7: the program of one person's turn reaches nothing of another person's turn on the same agent."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from agentsup.kit import fence
from tests.process.conftest import MakeDaemon
from tests.support.bound import BOUND_S
from tests.support.preloaded_process import DAEMON
from tests.support.web_client import Tab

pytestmark = [
    pytest.mark.process,
    pytest.mark.timeout(180),
    pytest.mark.skipif(fence.version() < fence.OLDEST, reason="this kernel has no Landlock"),
]

# The first one keeps something in its home, says where, and runs until it is let go. Whoever comes
# meanwhile tries all of it, and looks for tokens in its own home.
PROBE = """
import json, os, pathlib, sys, time
workspace, home = pathlib.Path.cwd(), pathlib.Path(os.environ["HOME"])
kept = home / ".claude/projects/p/session.jsonl"
config = sys.argv[sys.argv.index("--mcp-config") + 1]
def told(name, **facts):
    part = workspace / f".{os.getpid()}"
    part.write_text(json.dumps({"home": str(home), "config": config, **facts}))
    part.rename(workspace / name)
token = os.environ["AGENTSUP_TOKEN"]
assert token in open(config).read(), "its own it can read"
if not (workspace / "first").exists():
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text("my PIN is 4711")
    told("first", kept=str(kept), folder=str(pathlib.Path(config).parent))
    until = time.monotonic() + 40
    while not (workspace / "go").exists() and time.monotonic() < until:
        time.sleep(0.02)
    sys.exit(0)
first, reached = json.loads((workspace / "first").read_text()), []
deeds = {
    "read": lambda path: open(path).read(),
    "append": lambda path: open(path, "a").write("from another"),
    "list": os.listdir,
    "make": lambda path: os.mkdir(path + "/made"),
    "move": lambda path: os.rename(path, path + ".moved"),
}
names = ("config", "folder") if first["home"] == str(home) else ("config", "folder", "kept", "home")
for name in names:
    for deed, do in deeds.items():
        try:
            do(first[name])
        except OSError:
            continue
        reached.append([deed, name])
found = [str(p) for p in home.rglob("*") if p.is_file() and b"Bearer" in p.read_bytes()]
old = kept.read_text() if kept.exists() else ""
told(f"report-{home.parents[1].name}", reached=reached, tokens=found, old=old)
"""

PEOPLE = '[people.anna]\nrole = "user"\n[people.ben]\nrole = "user"\n'


async def wanted(workspace: Path, number: int, names: str = "report-*") -> dict[str, Any]:
    """What programs in so many homes have told, by home."""
    found: list[Path] = []
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(BOUND_S):
            while len(found := sorted(workspace.glob(names))) < number:
                await asyncio.sleep(0.02)
    told = {each["home"]: each for each in (json.loads(path.read_text()) for path in found)}
    assert len(told) == number, f"programs in {len(told)} homes, not {number}: {told}"
    return told


async def test_a_turn_reaches_nothing_of_another_persons_turn(
    make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    probe = tmp_path / "probe.py"
    probe.write_text(PROBE)
    command = [sys.executable, "-S", "-E", str(probe)]
    ada = {"name": "ada", "engine": "claude", "slots": 4, "engine_options": {"command": command}}
    daemon = make_daemon(["main", ada], config=PEOPLE, loaded=DAEMON)
    await daemon.start()
    agent = daemon.home / "agents" / "ada"
    workspace = agent / "workspace"
    anna, ben = Tab(daemon), Tab(daemon)
    try:
        await anna.sign_in("anna")
        await ben.sign_in("ben")
        hers, his = await anna.chat("anna", agent="ada"), await ben.chat("ben", agent="ada")
        await hers.say("hello")
        (first,) = (await wanted(workspace, 1, "first")).values()
        await his.say("hello")
        await daemon.send("ada", "hello")  # the operator's
        reports = await wanted(workspace, 2)
        for whose, report in reports.items():
            assert report["reached"] == [], f"{whose} reached what is anna's"
            assert report["tokens"] == [], "no token lies in a home"
            assert report["old"] == ""
        homes = [Path(each["home"]) for each in (first, *reports.values())]
        assert not any(a.is_relative_to(b) for a, b in itertools.permutations(homes, 2)), homes
        # What is hers is there at her next turn, and no file of the turn before.
        (workspace / "go").touch()
        await hers.say("again")
        report = (await wanted(workspace, 3))[first["home"]]
        assert report["old"] == "my PIN is 4711"
        assert report["reached"] == []
    finally:
        await anna.close()
        await ben.close()
