"""P3: a sick tool server costs the agent whose it is, and nobody else."""

from __future__ import annotations

import asyncio
import statistics
import sys
from pathlib import Path

import pytest

from agentsup.agents.stack import AgentStack
from tests.component.proofs.house import ProofDaemon, agent
from tests.component.proofs.proof import Claim, Proof, Removal

claim = Claim("P3")
RULES = [{"match": "(.*)", "steps": [{"say": "said $1"}]}]


def _program(code: str, *args: str) -> dict[str, object]:
    return {"command": sys.executable, "args": ["-c", code, *args], "start_timeout_s": 300}


SILENT = _program("import time; time.sleep(3600)")
LINES = 400
FLOOD = f"""
import os, sys
written = open(sys.argv[1], "ab", buffering=0)
while os.write(1, b"no protocol at all\\n" * {LINES}):
    written.write(b".")
"""
"""Notes each piece that somebody took from it."""
DYING = _program("import sys; sys.exit('no database')")
START_S, ANSWER_S, LAG_S = 5.0, 11.0, 0.04
LINES_A_SECOND, AT_ONCE = 3_000, 4 * LINES
"""At most while it floods: three times the pace. Whoever reads as it comes takes 100,000 a second."""
MOST_WINDOWS = 20


async def a_sick_server_delays_nobody(home: Path) -> None:
    """One never answers, one ends at once, one talks nonsense without end, one is not there."""
    flooding = home / "flood" / "began"
    flooding.parent.mkdir()
    sick = {
        "silent": SILENT,
        "dying": DYING,
        "flood": _program(FLOOD, str(flooding)),
        "missing": {"command": "no-such-program"},
    }
    async with ProofDaemon(
        home, [agent("main"), agent("bad", RULES, mcp=sick), agent("good", RULES)], is_real=True
    ) as house:
        await claim.comes(
            lambda: house.state("bad") == "running", START_S, "a server held up its agent's start"
        )
        await house.say("good", "one", "good-1")
        await claim.comes(lambda: house.heard("said one"), ANSWER_S, "the neighbour was held up")
        await claim.comes(flooding.exists, ANSWER_S, "nothing floods")
        late_s, is_paced = 0.0, False
        for _ in range(MOST_WINDOWS):  # in the first ones, what is read ahead is filled
            late_s, is_paced = await _window(flooding)
            if is_paced and late_s < LAG_S:
                break
        claim.holds(late_s < LAG_S, f"the loop was late by {late_s:.3f} s")
        claim.holds(is_paced, "a flood is read as it comes")
        lives = house.unit("bad").child.status.life
        await house.say("bad", "two", "bad-1")
        await claim.comes(
            lambda: house.heard("said two"), ANSWER_S, "its own agent waits for it without end"
        )
        claim.holds(lives == 1, "a server's end was its agent's")


async def _window(flooding: Path) -> tuple[float, bool]:
    """How late the loop was in some 0.6 s (median, s), and whether it read within the pace."""
    late, loop, taken = [], asyncio.get_running_loop(), flooding.stat().st_size
    since_s = loop.time()
    for _ in range(60):
        began = loop.time()
        await asyncio.sleep(0.01)
        late.append(loop.time() - began - 0.01)
    lines = LINES * (flooding.stat().st_size - taken)
    is_paced = lines <= AT_ONCE + LINES_A_SECOND * (loop.time() - since_s)
    return statistics.median(late), is_paced


# -- without the mechanisms ------------------------------------------------------------------------


def _opened_before_ready(patch: pytest.MonkeyPatch) -> None:
    original = AgentStack.run

    async def run(self: AgentStack, ready: object, draining: asyncio.Event) -> None:
        assert self.servers is not None
        self.workspace.mkdir(parents=True, exist_ok=True)
        self.servers.open(self.spec.mcp)
        try:
            await self.servers.tried(is_patient=True)
        except asyncio.CancelledError:
            await self.servers.close()
            raise
        await original(self, ready, draining)  # type: ignore[arg-type]  # as it was given

    patch.setattr(AgentStack, "run", run)


PROOFS = (
    Proof(
        "a sick tool server delays nobody",
        "P3",
        a_sick_server_delays_nobody,
        Removal("servers opened before the agent takes work", _opened_before_ready),
        is_real=True,
    ),
)
