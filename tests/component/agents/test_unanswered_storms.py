"""Liveness after storms in which nobody answers a question: kills at random instants under the work of
programs and agents, then quiet; all that was accepted ends within the time that the documents name."""

import asyncio
import os
import random
from pathlib import Path
from typing import Any

import pytest

from agentsup.agents.tools import file_tools
from agentsup.daemon import calls
from agentsup.kit.pool import BoundedPool
from agentsup.mailbox.bus import BusRequest
from agentsup.model.errors import AgentsupError
from agentsup.model.message import TERMINAL
from agentsup.model.principal import OPERATOR
from agentsup.model.question import UNCERTAIN_WITHIN_S
from agentsup.model.tool import Effect, Tool, ToolContext
from agentsup.testing.household import Household, agent
from agentsup.testing.simloop import run_virtual

STORMS = int(os.environ.get("AGENTSUP_STORMS", "4"))
MARGIN_S = 300.0
"""For retries and their pauses after the last question has run out."""


@pytest.fixture(autouse=True)
def append_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    async def append(context: ToolContext, args: dict[str, Any]) -> str:
        with (Path(context.workspace) / "log").open("a") as log:
            log.write(f"{context.call_id}\n")
        await asyncio.sleep(0.5)  # time to die between effect and result
        return "appended"

    def tools(files: BoundedPool) -> tuple[Tool, ...]:
        return (*file_tools(files), Tool("append", "", {"type": "object"}, append, Effect.BLIND))

    monkeypatch.setattr(calls, "file_tools", tools)


def agents() -> list[dict[str, Any]]:
    append = {"tool": {"name": "append", "args": {"text": "x"}}}

    def asking(whom: str) -> dict[str, Any]:
        return {"tool": {"name": "ask_agent", "args": {"to": whom, "message": "go"}}}

    free = {"permission_mode": "bypassPermissions"}
    go = {"match": "go", "steps": [append, {"say": "$result"}]}
    return [
        agent("ann", go, {"match": "chain", "steps": [asking("ben"), {"say": "$result"}]}, **free),
        agent(
            "ben",
            {"match": "go", "steps": [append, asking("cat"), {"say": "$result"}]},
            **free,
        ),
        agent("cat", go, **free),
    ]


async def storm(home: Path, seed: int) -> None:
    chance = random.Random(seed)
    house = await Household.open(home, agents())
    try:
        said = []
        for number in range(24):
            request = BusRequest(
                chance.choice(("ann", "ben", "cat")),
                chance.choice(("go", "go", "chain")),
                idempotency_key=f"{seed}-{number}",
            )
            try:
                accepted = await house.daemon.bus.send_async(request, caller=OPERATOR)
            except AgentsupError:
                continue
            said.append(str(accepted.message_id))
            await house.clock.sleep(chance.uniform(0.0, 0.4))
            if chance.random() < 0.25:
                await house.restart(kill=True)
        asked = len(await house.sql("SELECT 1 FROM questions WHERE kind = 'uncertain'"))
        for _ in range(round((2 * UNCERTAIN_WITHIN_S + MARGIN_S) / 30)):
            await house.clock.sleep(30.0)
            await house.daemon.mailbox.expire()
        for message_id in said:
            assert await house.state_of(message_id) in TERMINAL, (seed, message_id)
        left = await house.sql(
            "SELECT message_id, state FROM messages WHERE state NOT IN ('done', 'dead', 'cancelled')"
        )
        assert not left, (seed, asked, left)
        for name in ("ann", "ben", "cat"):
            log = house.home.workspace(name) / "log"
            made = log.read_text().split() if log.exists() else []
            assert len(made) == len(set(made)), "a call was repeated unasked"
    finally:
        await house.stop()


@pytest.mark.parametrize("seed", range(STORMS))
def test_all_work_ends_though_nobody_answers(tmp_path: Path, seed: int) -> None:
    run_virtual(storm(tmp_path / "home", seed))
