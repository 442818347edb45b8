"""P7: whose words are whose. What one person has said or had done reaches nobody else, and what an
agent has for itself no other agent.

``tests/component/proofs/flow.py`` says how it is tried.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agentsup.api.http.access import Access
from agentsup.api.server.listener import ROUTES
from agentsup.mailbox.messages import keys
from agentsup.model.principal import Principal
from tests.component.proofs.flow import (
    AGENTS,
    CHANNELS,
    IN_THE_WORKSPACE,
    NOT_HERE,
    PEOPLE,
    READING,
    Flow,
    Hostile,
    judge,
    name_of,
)
from tests.component.proofs.house import ProofDaemon, agent
from tests.component.proofs.proof import Claim, Proof, Removal

claim = Claim("P7")
SEEDS = [int(each) for each in os.environ.get("TEST_FLOW_SEEDS", "7").split(",")]
"""Long runs give many: ``TEST_FLOW_SEEDS=1,2,3``. A failure names the one to replay."""
ROUNDS = int(os.environ.get("TEST_FLOW_ROUNDS", "1"))
"""Hostile turns of each person."""


async def no_words_of_one_reach_another(home: Path) -> None:
    """Work of three people, then an engine that tries everything for each of them, then more work."""
    for seed in SEEDS:
        await _history(home / str(seed), seed)


async def _history(home: Path, seed: int) -> None:
    home.mkdir()
    flows: list[Flow] = []
    house = ProofDaemon(
        home,
        _entries(),
        is_real=True,
        engines={"scripted": lambda: Hostile(flows[0])},
        more_channels=CHANNELS[1:],
    )
    _give_agents_their_own(house)
    flow = Flow(house, seed)
    flows.append(flow)
    async with house:
        tools = [tool.name for tool in house.daemon.calls.tools.all()]
        await _equip(house, tools)
        for who in PEOPLE:
            await flow.say(who, "ada", f"WORK at ada: secret {flow.mark(who)}")
        await judge(flow, seed)
        for number in range(ROUNDS):
            at = flow.random.sample(list(PEOPLE), len(PEOPLE))
            turns = [(who, AGENTS[(n + number) % 2]) for n, who in enumerate(at)]
            await asyncio.gather(
                *(flow.say(who, to, f"HOSTILE {flow.mark(who)}") for who, to in turns),
                *(_talk(flow, who) for who in PEOPLE),
            )
            await judge(flow, seed)
        await flow.say("ben", "ada", f"HOSTILE RUN {flow.mark('ben')}")
        await judge(flow, seed)
        for who in PEOPLE:
            for to in AGENTS:
                await flow.say(who, to, f"tell me of the secret procedure house {flow.mark(who)}")
        await judge(flow, seed)
        wanted = {name_of(r) for r in ROUTES if r.access in (Access.ANY, Access.WORK, Access.RUN)}
        wanted |= (set(tools) - IN_THE_WORKSPACE - NOT_HERE) | set(READING)
        claim.holds(wanted <= flow.tried, f"not tried: {sorted(wanted - flow.tried)}")
        claim.holds(
            all(("POST " + path, 200) in flow.statuses for path in ("/tasks/create",))
            and ("POST /interagent/send_async", 202) in flow.statuses,
            f"the hostile engine got nowhere: {sorted(flow.statuses)}",
        )


async def _talk(flow: Flow, who: str) -> None:
    """What a person says meanwhile: something to somebody, here or there."""
    to, channel = flow.random.choice(AGENTS), flow.random.choice(CHANNELS)
    await flow.say(who, to, f"WORK secret {flow.mark(who)}", channel)


def _give_agents_their_own(house: ProofDaemon) -> None:
    """What only the agent itself may see: a memory and a file."""
    for name in ("main", *AGENTS):
        folder = house.home.agent_dir(name)
        (folder / "workspace").mkdir(parents=True, exist_ok=True)
        (folder / "MEMORY.md").write_text(f"the secret of {name} is zx{name}1")
        (folder / "workspace" / "secret.txt").write_text(f"zx{name}2")


async def _equip(house: ProofDaemon, tools: Sequence[str]) -> None:
    """Let every agent have the optional tools too, which must be named."""
    house.write_agents(_entries(tools))
    async with asyncio.timeout(20):
        while any(house.unit(name).spec.tools is None for name in AGENTS):
            await asyncio.sleep(0.02)


def _entries(tools: Sequence[str] = ()) -> list[dict[str, Any]]:
    more: dict[str, Any] = {"permission_mode": "bypassPermissions"}
    if tools:
        more["tools"] = list(tools)
    return [
        agent("main", **more),
        agent("ada", **more),
        agent("bob", subscriptions=["ada:finished"], **more),
    ]


# -- removals --------------------------------------------------------------------------------------


def _raw_threads(patch: pytest.MonkeyPatch) -> None:
    def key(caller: Principal, *, sender_id: str, name: str, person: str, thread: str) -> str:
        del caller, sender_id
        return thread or keys.peer_key(name, person)

    patch.setattr(keys, "session_key", key)


PROOFS = (
    Proof(
        "no words of one reach another",
        "P7",
        no_words_of_one_reach_another,
        Removal("a thread that an agent names is any key", _raw_threads),
        is_real=True,
    ),
)
