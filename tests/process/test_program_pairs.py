"""P3, P7: what any two programs of agents both reach: the workspace of one agent, and nothing else.

Real programs of each kind, of two agents, and of one of them for two persons, look at every place
of the home that any of them has, and at what coding agents keep in the home of the daemon's user. What
two of them can both write, read or present as a token is compared, kind by kind.

``TEST_PAIRS=all`` takes every coding agent known by name, and not only those that are tried live.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agentsup.engines.programs.cli_agent_policies import KINDS
from agentsup.engines.programs.presets import PRESETS
from agentsup.kit import fence
from tests.support.bound import BOUND_S
from tests.support.chat_client import Chat
from tests.support.daemon_process import DaemonProcess, write_home
from tests.support.web_client import Tab

pytestmark = [
    pytest.mark.process,
    pytest.mark.timeout(180),
    pytest.mark.skipif(fence.version() < fence.OLDEST, reason="this kernel has no Landlock"),
]

PROBE = """
import json, os, pathlib, sys
candidates, report = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
if "persons" in pathlib.Path(os.environ["HOME"]).parts:
    report = report.with_name(f"{report.name}.cleo")
given = [line for line in candidates.read_text().split("\\n") if line]
write, read = [], []
for path in given:
    try:
        if os.path.isdir(path):
            mark = os.path.join(path, f"probe-{os.getpid()}")
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            os.unlink(mark)
        else:
            os.close(os.open(path, os.O_WRONLY | os.O_APPEND))
        write.append(path)
    except OSError:
        pass
    try:
        if os.path.isdir(path):
            os.listdir(path)
        else:
            os.close(os.open(path, os.O_RDONLY))
        read.append(path)
    except OSError:
        pass
tokens = [value for name, value in os.environ.items() if name == "AGENTSUP_TOKEN"]
found = {"write": write, "read": read, "tokens": tokens, "home": os.environ.get("HOME")}
part = report.with_name(report.name + f".{os.getpid()}")
part.write_text(json.dumps(found))
part.rename(report)
"""

ENGINES: tuple[str, ...] = ("command", "claude", "gemini", "codex", "opencode", "acp")
if os.environ.get("TEST_PAIRS") == "all":
    ENGINES = (*ENGINES, *(name for name in PRESETS if name not in ENGINES))
ONE_HOME = {"claude", "claude-acp"}
"""Two ways to one program, which have its sessions in common."""
AGENTS = ("ann", "ben")
PEOPLE = '[people.cleo]\nrole = "user"\n'


@dataclass
class Fixture:
    """A daemon's home, and where its programs report."""

    home: Path
    root: Path
    reports: Path = field(init=False)
    candidates: Path = field(init=False)

    def __post_init__(self) -> None:
        self.reports = self.root / "reports"
        self.reports.mkdir()
        self.candidates = self.root / "candidates"
        self.candidates.touch()
        (self.root / "probe.py").write_text(PROBE)
        for kept in self.kept:
            kept.mkdir(parents=True)
            (kept / "sign-in").write_text("secret")

    @property
    def user(self) -> Path:
        """The home of the daemon's user."""
        return self.root / "user"

    @property
    def kept(self) -> list[Path]:
        """What coding agents keep there, and we."""
        names = {name for each in KINDS.values() for name in each.keeps}
        return [self.user / name for name in sorted(names | {".config/agentsup"})]

    def command(self, name: str) -> list[str]:
        probe = str(self.root / "probe.py")
        return [sys.executable, "-S", "-E", probe, str(self.candidates), str(self.reports / name)]

    def entries(self, engine: str, life: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = [{"name": "main"}]
        for agent in AGENTS:
            servers = {
                name: {"command": self.command(f"{agent}.mcp-{name}")[0], "args": args}
                for name in ("one", "two")
                for args in (self.command(f"{agent}.mcp-{name}")[1:],)
            }
            entry: dict[str, Any] = {"name": agent, "mcp": servers, "description": life}
            if engine == "exec":
                entry |= {"tools": ["exec"], "permission_mode": "bypassPermissions"}
            else:
                options: dict[str, Any] = {"command": self.command(f"{agent}.{engine}")}
                if engine == "command":
                    options["output"] = "text"
                entry |= {"engine": engine, "engine_options": options}
            found.append(entry)
        return found

    @property
    def rules(self) -> list[dict[str, Any]]:
        return [
            {
                "match": f"{agent}.*",
                "steps": [
                    {"tool": {"name": "exec", "args": {"argv": self.command(f"{agent}.exec")}}},
                    {"say": "$result"},
                ],
            }
            for agent in AGENTS
        ]

    def lay(self, engine: str, life: str) -> None:
        write_home(self.home, self.entries(engine, life), rules=self.rules, config=PEOPLE)

    def look(self) -> None:
        """Let programs try each place that there is now."""
        kept = [path for each in self.kept for path in (each, each / "sign-in")]
        places = map(str, [self.home, *self.home.rglob("*"), *kept])
        self.candidates.write_text("\n".join(places))

    def report(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.reports / name).read_text())
        return found


def is_settled(shown: dict[str, Any], engine: str) -> bool:
    return shown.get("engine") == engine and shown["status"] == "running" and not shown["pending"]


async def run_all(town: Fixture, daemon: DaemonProcess, cleo: Chat) -> None:
    """Each kind of program, one after the other, of all agents at once; for the operator, and of
    the first agent for cleo."""
    for number, engine in enumerate(("exec", *ENGINES)):
        life = f"{engine} {number}, {town.candidates.stat().st_size} bytes to try"
        town.lay(engine, life)
        async with asyncio.timeout(30):
            while True:
                shown = await daemon.agents()
                wanted = "scripted" if engine == "exec" else engine
                if all(is_settled(shown.get(agent, {}), wanted) for agent in AGENTS):
                    break
                await asyncio.sleep(0.05)
        sent = [await daemon.send(agent, f"{agent}, go") for agent in AGENTS]
        sent.append(await cleo.say(f"{AGENTS[0]}, go"))
        for message_id in sent:
            # What an agent that speaks no protocol says is no answer; its report is what counts.
            result = await daemon.result(message_id, wait_s=BOUND_S)
            if engine == "exec":
                assert "exit code 0" in result["text"], result


@asynccontextmanager
async def signed_in(daemon: DaemonProcess) -> AsyncIterator[Chat]:
    """A person's chat with the first agent."""
    tab = Tab(daemon)
    try:
        await tab.sign_in("cleo")
        yield await tab.chat("cleo", agent=AGENTS[0])
    finally:
        await tab.close()


async def reports_of(tmp_path: Path) -> dict[str, dict[str, Any]]:
    town = Fixture(tmp_path / "home", tmp_path)
    town.lay("exec", "first")
    env = {"HOME": str(town.user)}
    async with DaemonProcess(town.home, env=env) as daemon, signed_in(daemon) as cleo:
        await run_all(town, daemon, cleo)
        for agent in AGENTS:
            workspace = town.home / "agents" / agent / "workspace"
            (workspace / "notes").write_text("notes")
        town.look()
        for each in town.reports.iterdir():
            each.unlink()
        await run_all(town, daemon, cleo)
        kinds = ["exec", *ENGINES, "mcp-one", "mcp-two"]
        names = [f"{agent}.{kind}" for agent in AGENTS for kind in kinds]
        names += [f"{AGENTS[0]}.{kind}.cleo" for kind in ("exec", *ENGINES)]
        try:
            async with asyncio.timeout(BOUND_S):
                while not all((town.reports / name).exists() for name in names):
                    await asyncio.sleep(0.05)
        except TimeoutError:
            missing = [name for name in names if not (town.reports / name).exists()]
            pytest.fail(f"no report of {missing}")
        return {name: town.report(name) for name in names}


def _person(name: str) -> tuple[str, str]:
    """Whose program it is: the agent, and the person it works for."""
    agent, _, *rest = name.split(".")
    return agent, "".join(rest)


async def test_two_programs_share_their_agents_workspace_and_nothing_else(tmp_path: Path) -> None:
    found = await reports_of(tmp_path)
    home = tmp_path / "home"
    for (one, first), (two, second) in itertools.combinations(found.items(), 2):
        if {one.split(".")[1], two.split(".")[1]} == ONE_HOME and _person(one) == _person(two):
            continue
        agent = one.split(".")[0]
        workspace = home / "agents" / agent / "workspace"
        shared = workspace if agent == two.split(".")[0] else None
        for how in ("write", "read"):
            both = set(first[how]) & set(second[how])
            rest = {p for p in both if shared is None or not Path(p).is_relative_to(shared)}
            assert not rest, f"{one} and {two} can both {how} {sorted(rest)[:5]}"
        if shared is not None:
            assert str(workspace / "notes") in set(first["write"]) & set(second["write"])
        assert not set(first["tokens"]) & set(second["tokens"]), f"{one} and {two}: one token"
        assert first["home"] != second["home"], f"{one} and {two}: one home"
