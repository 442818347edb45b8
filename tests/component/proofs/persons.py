"""P7: whose words are whose. What one person has said or had done reaches nobody else, and what an
agent has for itself no other agent.

``tests/component/proofs/flow.py`` says how it is tried.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agentsup.agents.memory import ranking, rows
from agentsup.agents.memory.entry import MemoryOwner
from agentsup.agents.pipeline import results
from agentsup.api.http.access import Access
from agentsup.api.routes import task_orders
from agentsup.api.server.app import ROUTES
from agentsup.mailbox.delivery import notices
from agentsup.mailbox.messages import keys
from agentsup.mailbox.messages.values import RoleNow
from agentsup.model.message import DeliverTo
from agentsup.model.principal import Principal
from agentsup.model.task import Task
from agentsup.store.transaction import Reader
from agentsup.tasks import hub, listing, permissions
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
SEEDS = [int(each) for each in os.environ.get("AGENTSUP_FLOW_SEEDS", "7").split(",")]
"""Long runs give many: ``AGENTSUP_FLOW_SEEDS=1,2,3``. A failure names the one to replay."""
ROUNDS = int(os.environ.get("AGENTSUP_FLOW_ROUNDS", "1"))
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
        wanted = {name_of(r) for r in ROUTES if r.access in (Access.ANY, Access.RUN)}
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


def _one_session_per_peer(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(keys, "own_key", lambda base, person: base)


def _any_chat(patch: pytest.MonkeyPatch) -> None:
    async def named(call: Any, agent: str, chat_id: str, topic_id: str) -> DeliverTo | None:
        del agent, topic_id
        if not chat_id:
            return None
        own = call.who.agent_id
        return DeliverTo("chat", agent_id=own, channel="console", conversation=chat_id)

    patch.setattr(task_orders, "named_chat", named)


def _memory_of_the_agent(patch: pytest.MonkeyPatch) -> None:
    for name in ("audience", "queries"):
        original = getattr(rows, name)
        patch.setattr(rows, name, partial(_of_nobody, original))


def _of_nobody(original: Callable[..., Any], owner: MemoryOwner, *args: Any, **more: Any) -> Any:
    """What ``original`` returns for the agent's work for nobody, whoever it is for."""
    return original(replace(owner, person=""), *args, **more)


def _shared_by_saving(patch: pytest.MonkeyPatch) -> None:
    original = ranking.audience
    patch.setattr(rows, "audience", partial(original, is_shared=True))


def _all_work_of_the_agent(patch: pytest.MonkeyPatch) -> None:
    for module in (keys, permissions):
        patch.setattr(module, "is_of_work", lambda person, whose: True)


def _any_message(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(keys, "check_message", lambda message, agent_id, person: None)


def _tasks_of_all_listed(patch: pytest.MonkeyPatch) -> None:
    original = listing.list_tasks

    def whoever(reader: Reader, *, owner: Principal | None = None, **more: Any) -> list[Task]:
        return original(reader, owner=owner and replace(owner, behalf=""), **more)

    patch.setattr(hub, "list_tasks", whoever)


def _results_of_any_session(patch: pytest.MonkeyPatch) -> None:
    for name, session_of in (
        ("stored_piece", "SELECT session_id FROM results WHERE result_id = ?"),
        (
            "answer_piece",
            (
                "SELECT p.session_id FROM messages m JOIN messages p"
                " ON p.message_id = m.in_reply_to WHERE m.message_id = ?"
            ),
        ),
    ):
        patch.setattr(results, name, partial(_in_its_session, getattr(results, name), session_of))


def _in_its_session(
    original: Callable[..., Any], session_of: str, reader: Reader, *find: Any, **named: Any
) -> Any:
    """What ``original`` returns to the session in which the result is, whichever asks."""
    start, chars, subject_id, agent_id, session_id = find
    own = reader.scalar(session_of, (subject_id,))
    return original(reader, start, chars, subject_id, agent_id, own or session_id)


def _told_in_the_latest_chat(patch: pytest.MonkeyPatch) -> None:
    def latest(
        reader: Reader, agent_id: str, person: str, role_now: RoleNow
    ) -> tuple[str, str] | None:
        del person, role_now
        row = reader.one(
            "SELECT channel, conversation FROM conversations WHERE agent_id = ?"
            " ORDER BY last_at DESC LIMIT 1",
            (agent_id,),
        )
        return None if row is None else (row["channel"], row["conversation"])

    patch.setattr(notices, "find_conversation", latest)


PROOFS = (
    Proof(
        "no words of one reach another",
        "P7",
        no_words_of_one_reach_another,
        (
            Removal("a thread that an agent names is any key", _raw_threads),
            Removal("one session per peer for everybody's work", _one_session_per_peer),
            Removal("an agent names any chat", _any_chat),
            Removal("memory belongs to the agent", _memory_of_the_agent),
            Removal("what is saved as global is shared at once", _shared_by_saving),
            Removal("a turn may use all work of its agent", _all_work_of_the_agent),
            Removal("a message is looked up for whoever knows its id", _any_message),
            Removal("tasks are listed whoever they are for", _tasks_of_all_listed),
            Removal("a result is read from any session", _results_of_any_session),
            Removal("notices go where somebody talked last", _told_in_the_latest_chat),
        ),
        is_real=True,
    ),
)
