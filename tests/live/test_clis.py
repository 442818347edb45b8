"""Real coding agents from npm, as engines, against a model on the loopback.

Each answers, streams, asks leave and keeps to the answer, is stopped with its whole group, and
goes on with its conversation in a later process.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from agentsup.engines.guard import GuardedSession, open_guarded
from agentsup.engines.process import Fencing, ProcessLauncher
from agentsup.engines.registry import default_registry
from agentsup.kit.childenv import child_env
from agentsup.kit.clock import SystemClock
from agentsup.kit.proctable import members
from agentsup.model.engine import (
    EngineDone,
    EngineEvent,
    EngineSpec,
    HistoryItem,
    Permission,
    PermissionRequest,
    TextDelta,
    ToolFinished,
    Usage,
)
from tests.live.clis import CLIS, Cli, claude_acp, daemon_of
from tests.support.cli_model_server import CliModel
from tests.support.daemon_process import write_home
from tests.support.engine_host import MemoryHost, segment

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]


class Conversation:
    """An agent's turns, each with an engine and a manager of its own, as after a restart."""

    def __init__(self, cli: Cli, root: Path, *, user: Path | None = None) -> None:
        """Below ``root`` of a daemon, from which all but its place is closed to it. With ``user``
        it has the home of that user, and not its own."""
        self.cli = cli
        self.root = root
        self.user = user
        self.workspace = root / "agent" / "workspace"
        self.workspace.mkdir(parents=True)
        self.state: bytes | None = None
        self.history: list[HistoryItem] = []
        self.groups: list[int] = []

    async def say(
        self, text: str, *, allowed: bool = False, stop: bool = False, words: str = ""
    ) -> tuple[list[EngineEvent], list[PermissionRequest]]:
        """One turn: its events, and what leave was asked for."""

        async def permit(request: PermissionRequest) -> Permission:
            return Permission(allowed, "not now", words=words)

        manager = ProcessLauncher(SystemClock(), fencing=lambda: Fencing((str(self.root),), True))
        registry = default_registry(SystemClock(), self.cli.daemon_env, manager)
        host = MemoryHost(permit=permit)
        spec = EngineSpec(
            self.cli.engine,
            options=self.cli.options() | ({"home": "user"} if self.user else {}),
            workspace=str(self.workspace),
            env=child_env() | ({"HOME": str(self.user)} if self.user else {}),
            agent="ada",
        )
        session = await open_guarded(registry.get(self.cli.engine), spec, host)
        try:
            events = await self._turn(session, host, text, stop=stop)
        finally:
            await session.close()
            await registry.close()
        assert not host.groups, "its group is not told to be gone"
        self.groups += host.reaped_groups
        assert not [pgid for pgid in host.reaped_groups if members(pgid)]
        return events, host.permission_requests

    async def _turn(
        self, session: GuardedSession, host: MemoryHost, text: str, *, stop: bool
    ) -> list[EngineEvent]:
        given = segment(text, engine_state=self.state, history=tuple(self.history))
        events: list[EngineEvent] = []
        stopped_at = 0.0
        loop = asyncio.get_running_loop()
        async with aclosing(session.run(given)) as run:
            async for event in run:
                events.append(event)
                if stop and isinstance(event, TextDelta) and not stopped_at:
                    stopped_at = loop.time()
                    session.cancel(within_s=5.0)
        end = events[-1]
        assert isinstance(end, EngineDone)
        if stop:
            assert end.outcome == "cancelled"
            assert loop.time() - stopped_at < 3.0
        else:
            assert end.outcome == "ok", end
            self.state = end.engine_state
            self.history += [HistoryItem("user", text), HistoryItem("assistant", end.text)]
        return events


@pytest.fixture
async def model() -> AsyncIterator[CliModel]:
    async with CliModel() as each:
        yield each


@pytest.mark.parametrize("name", CLIS)
async def test_a_real_agent_is_an_engine(name: str, model: CliModel, tmp_path: Path) -> None:
    talk = Conversation(CLIS[name](model), tmp_path)
    events, _ = await talk.say("SAY(hello there friend)")
    assert len([e for e in events if isinstance(e, TextDelta)]) >= 2, "it streams"
    assert "hello there friend" in events[-1].text  # type: ignore[union-attr]  # a Done
    assert sum(e.output_tokens for e in events if isinstance(e, Usage)) > 0
    first = talk.state

    target = talk.workspace / "effect.txt"
    events, asked = await talk.say(f"WRITE({target})")
    assert asked
    assert not target.exists()
    assert [e.ok for e in events if isinstance(e, ToolFinished)] == [False]
    events, asked = await talk.say(f"WRITE({target})", allowed=True)
    assert len(asked) == 1
    assert target.read_text() == "written\n"
    assert [e.ok for e in events if isinstance(e, ToolFinished)] == [True]

    await talk.say("SLOW(one two three four five six seven eight nine ten)", stop=True)
    await talk.say("SAY(still here)")
    assert "hello there friend" in model.last_heard, "what was said before is known"
    if talk.cli.keeps_session:
        assert _session(first) == _session(talk.state)
    assert len(talk.groups) >= 5


@pytest.mark.parametrize("name", CLIS)
async def test_a_real_agent_in_its_users_home_works_around_the_daemons(
    name: str, model: CliModel, tmp_path: Path
) -> None:
    """The daemon's home lies in the user's, as it does by default: closed, and the way to it too."""
    user = tmp_path / "user"
    for folder in (".config", ".cache", ".local/share", ".local/state", ".claude", ".gemini"):
        (user / folder).mkdir(parents=True)
    (user / ".codex").mkdir()
    talk = Conversation(CLIS[name](model), user / ".agentsup", user=user)
    events, _ = await talk.say("SAY(hello there friend)")
    assert "hello there friend" in events[-1].text  # type: ignore[union-attr]  # a Done
    await talk.say("SAY(still here)")
    assert "hello there friend" in model.last_heard, "what was said before is known"


@pytest.mark.parametrize("name", ["claude-acp", "gemini", "opencode", "codex"])
async def test_what_a_person_says_with_a_denial_reaches_the_model_over_acp(
    name: str, model: CliModel, tmp_path: Path
) -> None:
    talk = Conversation(CLIS[name](model), tmp_path)
    target = talk.workspace / "effect.txt"
    events, asked = await talk.say(f"WRITE({target})", words="SAY(then on staging)")
    assert len(asked) == 1
    assert not target.exists()
    assert "then on staging" in events[-1].text  # type: ignore[union-attr]  # a Done


def _session(state: bytes | None) -> str:
    body = json.loads(state or b"{}")
    return str(body.get("id") or body.get("session"))


async def test_a_killed_daemon_leaves_no_agent_and_goes_on(model: CliModel, tmp_path: Path) -> None:
    cli = claude_acp(model)
    options = {"command": cli.command, "env": cli.daemon_env}
    entry = {"name": "main", "engine": "claude-acp", "engine_options": options}
    home = write_home(tmp_path / "home", [entry])
    async with daemon_of(home) as daemon:
        first = await daemon.send("main", "SAY(hello there friend)")
        result = await daemon.result(first, wait_s=60.0)
        assert "hello there friend" in result["text"], result
        slow = await daemon.send("main", "SLOW(one two three four five six)")
        while not model.orders or not model.orders[-1].startswith("SLOW"):
            await model.wait_order()
        (row,) = daemon.sql("SELECT pgid FROM processes")
        daemon.kill()
        await daemon.ended()
        await daemon.start()
        assert not members(row["pgid"])
        result = await daemon.result(slow, wait_s=60.0)
        assert "one two three four five six" in result["text"], result
        last = await daemon.send("main", "SAY(still here)")
        assert "still here" in (await daemon.result(last, wait_s=60.0))["text"]
        assert "hello there friend" in model.last_heard
        assert not daemon.sql("SELECT pgid FROM processes")


@pytest.mark.parametrize("name", CLIS)
async def test_a_real_agent_calls_our_tools(name: str, model: CliModel, tmp_path: Path) -> None:
    cli = CLIS[name](model)
    options = {"command": cli.command, "env": {**cli.daemon_env, **cli.env}}
    home = write_home(
        tmp_path / "home",
        [
            {"name": "main"},
            {"name": "ada", "engine": cli.engine, "engine_options": options},
            {"name": "bob"},
        ],
        rules=[{"match": ".*", "steps": [{"say": "bob hears you"}]}],
    )
    async with daemon_of(home) as daemon:
        order = 'USE(ask_agent {"to": "bob", "message": "hello bob"})'
        message = await daemon.send("ada", order)
        result = await daemon.result(message, wait_s=40.0)
        assert "bob hears you" in result["text"], result
        rows = daemon.sql("SELECT name, state FROM tool_calls WHERE message_id = ?", (message,))
        assert [(row["name"], row["state"]) for row in rows] == [("ask_agent", "done")]
