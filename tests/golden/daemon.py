"""The household whose outputs are recorded: a whole daemon in this process, with its listener.

It runs in real time, because command lines and HTTP clients speak to it over a socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import aiohttp

from agentsup.cli.main import main
from agentsup.kit.lag import LagProbe, LagStats
from agentsup.model.control import CommandContext, CommandReply, Commands
from agentsup.model.principal import OPERATOR
from tests.support.bound import BOUND_S
from tests.support.ports import free_port
from tests.support.virtual_daemon import OPERATOR_TOKEN, VirtualDaemon, agent

RULES: tuple[Mapping[str, Any], ...] = (
    {"match": "fail", "steps": [{"fail": "the script wants it so"}]},
    {
        "match": "choose",
        "steps": [
            {"question": {"text": "Which one?", "options": ["tea", "coffee"]}},
            {"say": "Then $result."},
        ],
    },
    {
        "match": "remember (.+)",
        "steps": [
            {"tool": {"name": "memory_save", "args": {"key": "drink", "content": "$1"}}},
            {"say": "saved"},
        ],
    },
    {
        "match": "ask (.+)",
        "steps": [
            {"tool": {"name": "ask_agent", "args": {"to": "ben", "message": "$1"}}},
            {"say": "ben: $result"},
        ],
    },
    {
        "match": "run (.+)",
        "steps": [
            {"tool": {"name": "exec", "args": {"argv": ["touch", "$1"]}}},
            {"say": "$result"},
        ],
    },
    {"match": "crash", "steps": [{"crash": "boom"}]},
    {"match": "slow", "steps": [{"sleep": 600}]},
    {"match": "(.+)", "steps": [{"say": "you said $1"}]},
)
CONFIG = """
[api]
port = {port}
[limits]
crashes = 1
[people.eva]
role = "user"
"""


class GoldenDaemon:
    """The daemon, and the three ways in that are recorded."""

    def __init__(self, house: VirtualDaemon, port: int, http: aiohttp.ClientSession) -> None:
        self.house = house
        self.port = port
        self._http = http

    async def play(self) -> None:
        """What has happened before anything is looked at."""
        house = self.house
        await house.ask("main", "hello")
        await house.ask("ann", "hello ann")
        await house.ask("ann", "remember green tea")
        await house.ask("ann", "ask is there tea")
        await house.ask("ben", "fail")
        await house.said("ann", "choose", conversation="kitchen")
        await house.said("ann", "run here", conversation="cellar")
        await house.ask("cid", "crash")
        await self._command("ann", "/task new water the plants")
        await self._command("ben", "/remind every day at 9:00 sweep the yard")
        await house.until(self._is_played)
        await house.settled()

    async def _command(self, name: str, text: str) -> None:
        reply = await self.house.command(name, text)
        assert reply.ok, reply

    async def _is_played(self) -> bool:
        counts = await self.house.sql(
            "SELECT (SELECT COUNT(*) FROM questions WHERE state = 'open'),"
            " (SELECT COUNT(*) FROM tasks WHERE state = 'done'),"
            " (SELECT COUNT(*) FROM outbox WHERE state = 'pending')"
        )
        return counts == [(2, 1, 0)]

    async def quiet(self) -> None:
        """Until nothing that was caused so far is under way."""
        await self.house.until(self._is_quiet)

    async def _is_quiet(self) -> bool:
        found = await self.house.sql(
            "SELECT EXISTS (SELECT 1 FROM messages WHERE state IN ('queued', 'leased')),"
            " EXISTS (SELECT 1 FROM outbox WHERE state = 'pending')"
        )
        return found == [(0, 0)]

    async def chat(self, name: str, text: str, language: str) -> str:
        """What a chat command is answered, with its buttons."""
        entry = self.house.roster.entry(name)
        context = CommandContext(
            entry.agent_id,
            name,
            "console",
            "local",
            principal=OPERATOR,
            has_buttons=True,
            language=language,
        )
        commands: Commands = self.house.daemon.inbox._commands
        reply: CommandReply = await commands.run(text, context)
        rows = [
            " | ".join(f"[{each.label}: {each.command}]" for each in row) for row in reply.buttons
        ]
        return "\n".join([reply.text, *rows])

    async def cli(self, *words: str) -> str:
        """What a command line prints, and its exit code if that is not 0."""
        return await asyncio.to_thread(_run_command, ("--home", str(self.house.home.root), *words))

    async def http(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Status and document of a request by the operator."""
        headers = {"Authorization": f"Bearer {OPERATOR_TOKEN}"}
        url = f"http://127.0.0.1:{self.port}{path}"
        async with self._http.request(method, url, json=body, headers=headers) as answer:
            is_json = "json" in answer.content_type
            return answer.status, await (answer.json() if is_json else answer.text())


def _run_command(words: tuple[str, ...]) -> str:
    output = io.StringIO()
    code: object = 0
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            main(words)
        except SystemExit as end:
            code = end.code
    return output.getvalue() + (f"(exit code {code})\n" if code else "")


@contextlib.asynccontextmanager
async def golden_household(root: Path) -> AsyncIterator[GoldenDaemon]:
    """The household after ``play``; it is ended at the end."""
    port = free_port()
    house = VirtualDaemon(root)
    house.home.create()
    house.write(
        [
            agent("main", *RULES),
            agent("ann", *RULES, description="Keeps the kitchen.", tools=["*", "exec"]),
            agent("ben", *RULES, description="Keeps the garden."),
            agent("cid", *RULES, restart={"base_s": 0.01, "jitter": 0}),
        ]
    )
    house.home.config_toml.write_text(CONFIG.format(port=port), encoding="utf-8")
    house.home.api_token.write_text(OPERATOR_TOKEN, encoding="ascii")
    house.home.api_token.chmod(0o600)
    house.put_role("cook")
    await house.assemble()
    ending = house.daemon.ending
    running = asyncio.get_running_loop().create_task(house.daemon.supervisor.run())
    never_late = mock.patch.object(LagProbe, "stats", return_value=LagStats(samples=1))
    try:
        async with asyncio.timeout(4 * BOUND_S), aiohttp.ClientSession() as http:
            never_late.start()  # a loaded machine must not be recorded as "not ready"
            await house.until(lambda: ending.state == "running" or running.done())
            await house.settled()
            household = GoldenDaemon(house, port, http)
            await household.play()
            yield household
    finally:
        never_late.stop()
        ending.end(0, "recorded")
        ending.force()
        await running
        await house.registry.close()
        await house.db.close()
