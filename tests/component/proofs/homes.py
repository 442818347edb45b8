"""P7: what the programs of one person's turns keep is reached by those of nobody else's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentsup.channels.core.receiving import ChatOrigin
from agentsup.engines.process import EngineHome, exec_home, homes
from agentsup.engines.programs.cli_agent_policies import CLAUDE
from agentsup.model.engine import (
    EngineCaps,
    EngineDone,
    EngineEvent,
    EngineHost,
    EngineSpec,
    Segment,
)
from agentsup.model.principal import OPERATOR, PersonRole, Principal, PrincipalKind
from tests.component.proofs.house import ProofDaemon, agent
from tests.component.proofs.proof import Claim, Proof, Removal

claim = Claim("P7")

PEOPLE = {
    "anna": Principal(PrincipalKind.PERSON, "anna", "Anna", PersonRole.USER),
    "ben": Principal(PrincipalKind.PERSON, "ben", "Ben", PersonRole.USER),
    "operator": OPERATOR,
}


class Keeper:
    """An engine that has programs' homes, asks the other agent, and says whose words it was told."""

    name = "scripted"
    caps = EngineCaps(tools=True)

    def __init__(self, users: dict[Path, set[str]]) -> None:
        self.users = users

    async def open(self, spec: EngineSpec, host: EngineHost) -> Turn:
        return Turn(self.users, spec, host)

    async def close(self) -> None:
        return None


class Turn:
    def __init__(self, users: dict[Path, set[str]], spec: EngineSpec, host: EngineHost) -> None:
        self.users, self.spec, self.host = users, spec, host

    async def run(self, segment: Segment) -> AsyncIterator[EngineEvent]:
        who = segment.text.split()[0]
        self.users[EngineHome.of(self.spec, "claude", CLAUDE).path].add(who)
        self.users[exec_home(Path(self.spec.workspace), self.spec.person)].add(who)
        if self.spec.agent == "ada":
            await self.host.call("ask_agent", {"to": "bob", "message": f"{who} asks"})
        yield EngineDone("ok", text="done")

    async def close(self) -> None:
        return None


async def no_home_is_two_persons(home: Path) -> None:
    """Each person's turn, and the turns of the agent that it asks, have homes of their own."""
    users: dict[Path, set[str]] = defaultdict(set)
    agents = [agent(name) for name in ("main", "ada", "bob")]
    async with ProofDaemon(home, agents, engines={"scripted": lambda: Keeper(users)}) as house:
        for who in (*PEOPLE, *PEOPLE):
            reply = await house.daemon.inbox.say(
                agent_name="ada",
                where=ChatOrigin("console", who if who != "operator" else "local"),
                text=f"{who} says",
                principal=PEOPLE[who],
                external_id=f"{who}-{len(users)}-{sum(map(len, users.values()))}",
            )
            assert reply.message is not None
            done = await house.daemon.mailbox.queue.wait_done(reply.message.message_id, 60)
            claim.holds(done.outcome == "ok", f"the turn failed: {done}")
    shared = {str(path): whose for path, whose in users.items() if len(whose) > 1}
    claim.holds(not shared, f"homes of several persons: {shared}")
    wanted = 2 * len(PEOPLE) * 2
    claim.holds(len(users) == wanted, f"{len(users)} homes, not {wanted}: {sorted(users)}")


def _one_home_for_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(homes, "homes_folder", lambda workspace, person: workspace.parent)


PROOFS = (
    Proof(
        "no home is two persons'",
        "P7",
        no_home_is_two_persons,
        Removal("one home for all persons", _one_home_for_all),
    ),
)
