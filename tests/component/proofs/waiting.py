"""P8, P3, P2: a program that waits for a person keeps nobody else waiting, and outlives whatever
comes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agentsup.mailbox.work.slots import TurnSlot
from agentsup.model.engine import (
    EngineCaps,
    EngineDone,
    EngineHost,
    EngineSpec,
    Permission,
    PermissionRequest,
    Segment,
    ToolFinished,
)
from tests.component.proofs.house import EVA, ProofDaemon
from tests.component.proofs.proof import Claim, Proof, Removal

claim, others, once, bounds = Claim("P8"), Claim("P3"), Claim("P2"), Claim("P7")
LONG = "[limits]\ndrain_s = 30\nready_timeout_s = 10\napproval_s = 86400\n"
Ask = tuple[str, str, Mapping[str, Any]]
"""The program's own id of a request, its tool, and the arguments."""
TOUCH: Ask = ("1", "Bash", {"command": "touch it"})


class Program:
    """Asks for leave, again in each of its runs, as a coding agent does that begins anew."""

    name = "command"
    caps = EngineCaps()

    def __init__(self, asks: Callable[[int], list[Ask]], *, told: bool = True) -> None:
        """``asks`` says what the how manieth run asks; ``told``: it tells of each call's end."""
        self._asks = asks
        self._told = told
        self.runs = 0
        self.done: list[str] = []
        self.said: list[Permission] = []
        self._host: EngineHost

    async def open(self, spec: EngineSpec, host: EngineHost) -> Program:
        self._host = host
        return self

    async def run(self, segment: Segment) -> Any:
        if segment.text == "hi":
            yield EngineDone("ok", text="it said: hi")
            return
        self.runs += 1
        for request_id, tool, args in self._asks(self.runs):
            said = await self._host.permit(PermissionRequest(request_id, tool, dict(args)))
            self.said.append(said)
            if said.allowed:
                self.done.append(str(args.get("command") or args.get("file_path")))
                if self._told:
                    yield ToolFinished(tool, True, "done")
        yield EngineDone("ok", text="it said: done")

    async def close(self) -> None:
        return


@asynccontextmanager
async def house_of(home: Path, program: Program, **fields: Any) -> AsyncIterator[ProofDaemon]:
    ann = {"name": "ann", "engine": "command", **fields}
    engines = {"command": lambda: program}
    agents = [{"name": "main", "engine": "scripted", "engine_options": {"rules": []}}, ann]
    async with ProofDaemon(home, agents, config=LONG, engines=engines) as house:
        yield house


async def asked(house: ProofDaemon, number: int = 1) -> str:
    """The open question, the how manieth in all."""

    def shown() -> list[str]:
        return [p.body["question_id"] for p in house.channel.sent if p.kind == "question"]

    await claim.comes(lambda: len(shown()) >= number, 30, f"question {number} was not asked")
    return shown()[-1]


async def asked_of(house: ProofDaemon) -> int:
    return int((await house.sql("SELECT count(*) FROM questions"))[0][0])


async def end(house: ProofDaemon, promise: Claim = claim) -> None:
    await promise.comes(lambda: house.heard("it said: done"), 600, "the turn did not end")


# -- proofs ----------------------------------------------------------------------------------------


async def who_waits_for_leave_keeps_no_slot(home: Path) -> None:
    """An agent with one slot: its program asks, and somebody else writes."""
    async with house_of(home, Program(lambda run: [TOUCH]), slots=1) as house:
        await house.say("ann", "go")
        question = await asked(house)
        await house.say("ann", "hi", "c2")
        await others.comes(
            lambda: house.heard("it said: hi", "c2"), 60, "nobody else is heard while one is asked"
        )
        await house.daemon.mailbox.questions.answer(question, "once", EVA)
        await end(house, others)


# -- removals --------------------------------------------------------------------------------------


def _slot_kept(patch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def released(self: TurnSlot) -> AsyncIterator[None]:
        yield

    patch.setattr(TurnSlot, "released", released)


PROOFS = (
    Proof(
        "a turn that waits for approval keeps no slot",
        "P3",
        who_waits_for_leave_keeps_no_slot,
        Removal("a slot kept during the wait", _slot_kept),
    ),
)
