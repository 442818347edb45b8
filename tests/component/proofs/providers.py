"""P2, P3 and P6 where models fail: done once, nobody else's trouble, and no attempt after the last."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agentsup.agents.workspace import engine_setup
from tests.component.proofs.house import ProofDaemon, agent
from tests.component.proofs.proof import Claim, Proof, Removal

once, alone, bounded = Claim("P2"), Claim("P3"), Claim("P6")
QUIET_S = 0.25
"""In virtual time a turn takes what the inline store draws for its commits: some 30 ms."""
APPEND = {"tool": {"name": "append", "args": {"text": "x"}}}


def trouble(code: str) -> dict[str, Any]:
    return {"trouble": {"code": code}}


def rule(match: str, *steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"match": match, "steps": list(steps), **more}


async def a_sick_provider_hurts_no_others(home: Path) -> None:
    """One provider fails for many chats at once; an agent with another one answers as if alone."""
    sick = agent("sick", [rule(".*", trouble("server_error"))], provider="acme")
    good = agent("good", [rule("(.*)", {"say": "good $1"})], provider="fine")
    async with ProofDaemon(home, [agent("main"), sick, good]) as house:
        for number in range(8):
            await house.say("sick", "hello", f"sick-{number}")
        await asyncio.sleep(5)
        for number in range(10):
            await house.say("good", f"{number}", f"good-{number}")
            await alone.comes(
                partial(house.heard, f"good {number}"),
                QUIET_S,
                f"the neighbour was held up at {number}",
            )
            await asyncio.sleep(2)
        asked = await _failed_attempts(house)
        alone.holds(asked <= 8, f"the sick provider was asked {asked} times within 25 s")


async def _failed_attempts(house: ProofDaemon, code: str = "server_error") -> int:
    """Those on record; the last one of a message that fails for good is not."""
    rows = await house.database.read(
        lambda r: r.scalar("SELECT count(*) FROM attempts WHERE code = ?", (code,))
    )
    return int(rows)


# -- what is taken out -------------------------------------------------------------------------------


def _one_breaker(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(engine_setup, "provider_of", lambda *args, **more: "everybody")


PROOFS = (
    Proof(
        "a sick provider hurts no others",
        "P3",
        a_sick_provider_hurts_no_others,
        Removal("one breaker for all providers", _one_breaker),
    ),
)
