"""P3: real programs that wait for a person keep no place that somebody else needs."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import pytest

from agentsup.engines.claude import ClaudeEngine
from agentsup.engines.process import ProcessLauncher, ProcessSlotLimits
from agentsup.engines.process.process import EngineProcess
from agentsup.kit.clock import SystemClock
from tests.component.proofs.house import EVA, ProofDaemon, agent
from tests.component.proofs.proof import Claim, Proof, Removal
from tests.process.test_waiting_programs import PROGRAM

claim = Claim("P3")
ANSWER_S = 8.0
"""A program is held after a second, and another needs two on a loaded machine."""


async def who_waits_keeps_nobodys_place(home: Path) -> None:
    """One program may run, one may be held. Two ask, one after the other; somebody writes after
    each of them, and both go on once when they are answered."""
    script = home / "program.py"
    script.write_text(PROGRAM)
    limits = ProcessSlotLimits(total=1, per_agent=1, paused=1)
    clock = SystemClock()
    children = ProcessLauncher(clock, limits=lambda: limits)
    options = {"command": [sys.executable, str(script)]}
    ann = {"name": "ann", "engine": "claude", "engine_options": options, "slots": 4}
    engines = {"claude": lambda: ClaudeEngine(children, clock, {})}
    async with ProofDaemon(home, [agent("main"), ann], is_real=True, engines=engines) as house:

        def asked() -> list[str]:
            return [p.body["question_id"] for p in house.channel.sent if p.kind == "question"]

        def has_asked(number: int) -> bool:
            return len(asked()) >= number

        for number in (1, 2):
            await house.say("ann", f"make file{number}", f"asks-{number}")
            await claim.comes(partial(has_asked, number), 30, f"{number} was not asked")
            await house.say("ann", "hi", f"writes-{number}")
            await claim.comes(
                partial(house.heard, "hello", f"writes-{number}"),
                ANSWER_S,
                f"{number} that waits for a person keeps the place of others",
            )
        for question in asked():
            await house.daemon.mailbox.answer(question, "once", EVA)
        for number in (1, 2):
            went_on = partial(house.heard, "allow", f"asks-{number}")
            await claim.comes(went_on, 30, f"{number} did not go on")
            made = list(house.home.workspace("ann").glob(f"file{number}.*"))
            claim.holds(len(made) == 1, f"what had leave once was done {len(made)} times")
    await children.close()


# -- without the mechanisms ------------------------------------------------------------------------


def _never_held(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EngineProcess, "rest", lambda self, *, after_s=0.0: None)
    patch.setattr(EngineProcess, "wake", lambda self: None)


PROOFS = (
    Proof(
        "a waiting program keeps no process slot",
        "P3",
        who_waits_keeps_nobodys_place,
        Removal("programs that wait counted as running", _never_held),
        is_real=True,
    ),
)
