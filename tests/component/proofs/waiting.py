"""P8, P3, P2: a program that waits for a person keeps nobody else waiting, and outlives whatever
comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agentsup.agents.turn.engine_host import TurnHost
from agentsup.approvals import rules
from agentsup.mailbox.lifecycle import ending
from agentsup.mailbox.work.handler import Work
from agentsup.mailbox.work.pump import Pump
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
from agentsup.model.errors import Conflict
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
        await house.daemon.mailbox.answer(question, "once", EVA)
        await end(house, others)


async def a_question_outlives_its_program(home: Path) -> None:
    """The daemon dies six times in six hours; the button of the first hour still works."""
    program = Program(
        lambda run: [("1", "Bash", {"command": "touch it", "description": f"for the {run}. time"})]
    )
    async with house_of(home, program) as house:
        await house.say("ann", "go")
        question = await asked(house)
        for _ in range(6):
            await house.crash()
            await asyncio.sleep(3600)
            await house.open()
            await asyncio.sleep(30)
        claim.holds(program.runs == 1, f"it was run {program.runs} times while a person was asked")
        try:
            await house.daemon.mailbox.answer(question, "once", EVA)
        except Conflict as refusal:
            claim.broken(f"the old button is dead: {refusal}")
        await claim.comes(lambda: program.done, 60, "the old button did nothing")
        await end(house)
        claim.holds(await asked_of(house) == 1, "the person was asked again about the same call")
        claim.holds(program.done == ["touch it"], f"leave for one call led to {program.done}")


async def an_end_waits_for_nobody_who_is_asked(home: Path) -> None:
    """The daemon ends in order while a person is asked: what works gets 30 s, this gets none."""
    program = Program(lambda run: [TOUCH])
    async with house_of(home, program) as house:
        await house.say("ann", "go")
        question = await asked(house)
        began_s = house.clock.monotonic()
        await house.close()
        took_s = house.clock.monotonic() - began_s
        others.holds(took_s < 10, f"the end took {took_s:.0f} s, for a program that only waits")
        await house.open()
        await house.daemon.mailbox.answer(question, "once", EVA)
        await end(house, others)
        others.holds(program.done == ["touch it"], f"what was done is {program.done}")


async def what_is_under_way_is_not_cut_off(home: Path) -> None:
    """A program writes while it asks about something else, and its place is wanted."""
    write: Ask = ("w", "Write", {"file_path": "a.txt"})
    program = Program(lambda run: [write, TOUCH], told=False)
    async with house_of(home, program) as house:
        await house.say("ann", "go")
        question = await asked(house)
        stack = house.unit("ann").stack
        assert stack is not None
        (work,) = stack.in_flight
        work.slot.suspend()
        await asyncio.sleep(10)
        await house.daemon.mailbox.answer(question, "once", EVA)
        await once.comes(
            lambda: house.heard("it said: done"),
            60,
            "a call under way was cut off, its fate unknown",
        )
        once.holds(program.runs == 1, "a call under way was cut off and the turn run again")


async def an_answer_is_for_what_was_asked(home: Path) -> None:
    """A program shows an old id for another command, and its old request once more."""
    other: Ask = ("1", "Bash", {"command": "touch other"})
    program = Program(lambda run: [TOUCH, other, TOUCH])
    async with house_of(home, program) as house:
        await house.say("ann", "go")
        await house.daemon.mailbox.answer(await asked(house), "once", EVA)
        await asyncio.sleep(10)
        bounds.holds("touch other" not in program.done, "leave was spent on another command")
        await house.daemon.mailbox.answer(await asked(house, 2), "deny", EVA)
        await end(house, bounds)
        allowed = [each.allowed for each in program.said]
        bounds.holds(allowed == [True, False, True], f"the answers were {allowed}")


async def nothing_is_asked_twice(home: Path) -> None:
    """A model that was denied asks once more under other ids, and so does one that was allowed."""
    also: list[Ask] = [(str(number), *TOUCH[1:]) for number in (2, 3)]
    for answer in ("deny", "once"):
        program = Program(lambda run: [TOUCH, *also])
        async with house_of(home / answer, program) as house:
            await house.say("ann", "go")
            await house.daemon.mailbox.answer(await asked(house), answer, EVA)
            await claim.comes(partial(house.heard, "it said: done"), 60, "a person is asked twice")
            claim.holds(await asked_of(house) == 1, "a person was asked twice about one call")
            allowed = {each.allowed for each in program.said}
            claim.holds(allowed == {answer == "once"}, f"{answer} led to {program.said}")


# -- removals --------------------------------------------------------------------------------------


def _slot_kept(patch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def released(self: TurnSlot) -> AsyncIterator[None]:
        yield

    patch.setattr(TurnSlot, "released", released)


def _queued_again(patch: pytest.MonkeyPatch) -> None:
    """What left its lease runs again, whether or not somebody is being asked."""
    patch.setattr(ending, "is_asked", lambda reader, message_id: False)


def _nobody_let_go(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Pump, "suspend", lambda self, work: False)


def _whoever_asks_let_go(patch: pytest.MonkeyPatch) -> None:
    original = Pump.suspend

    def leave(self: Pump, work: Work) -> bool:
        busy, work.busy = work.busy, 0
        try:
            return original(self, work)
        finally:
            work.busy = busy

    patch.setattr(Pump, "suspend", leave)


def _known_by_id(patch: pytest.MonkeyPatch) -> None:
    """The program's own id of a request is believed to name what it is about."""
    original, answers = TurnHost.permit, dict[str, Permission]()

    async def permit(self: TurnHost, request: PermissionRequest) -> Permission:
        if request.request_id not in answers:
            answers[request.request_id] = await original(self, request)
        return answers[request.request_id]

    patch.setattr(TurnHost, "permit", permit)


def _each_call_by_itself(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules, "content_of", lambda call_id: call_id)


PROOFS = (
    Proof(
        "a turn that waits for approval keeps no slot",
        "P3",
        who_waits_for_leave_keeps_no_slot,
        Removal("a slot kept during the wait", _slot_kept),
    ),
    Proof(
        "a question outlives its program",
        "P8",
        a_question_outlives_its_program,
        Removal("a cut turn queued while a person is asked", _queued_again),
    ),
    Proof(
        "an end waits for nobody who is asked",
        "P3",
        an_end_waits_for_nobody_who_is_asked,
        Removal("who only waits is not let go", _nobody_let_go),
    ),
    Proof(
        "what is under way is not cut off",
        "P2",
        what_is_under_way_is_not_cut_off,
        Removal("whoever asks is let go", _whoever_asks_let_go),
    ),
    Proof(
        "an answer is for what was asked",
        "P7",
        an_answer_is_for_what_was_asked,
        Removal("a request known by its id alone", _known_by_id),
    ),
    Proof(
        "nothing is asked twice",
        "P8",
        nothing_is_asked_twice,
        Removal("each call judged by itself", _each_call_by_itself),
    ),
)
