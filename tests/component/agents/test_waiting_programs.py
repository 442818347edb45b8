"""Turns of programs that wait for a person in place: they keep nobody waiting, and outlive anything."""

from __future__ import annotations

from typing import Any

import pytest

from agentsup.engines.registry import EngineRegistry
from agentsup.model.engine import (
    EngineCaps,
    EngineDone,
    Permission,
    PermissionRequest,
    Segment,
    ToolFinished,
)
from agentsup.model.principal import OPERATOR
from tests.component.agents.shared import PlayedEngine, is_let_go, let_go, open_question
from tests.component.conftest import Open
from tests.support.virtual_daemon import VirtualDaemon, agent

pytestmark = pytest.mark.virtual

LONG = "[limits]\napproval_s = 86400\n"


def bash(number: int) -> PermissionRequest:
    """The same command, described in other words each time."""
    args = {"command": "touch it", "description": f"makes a file, as I said {number} times"}
    return PermissionRequest(f"r{number}", "Bash", args)


class Program(PlayedEngine):
    """Asks for leave in each of its runs, as a coding CLI that begins anew does."""

    caps = EngineCaps()

    def __init__(self, *, first: PermissionRequest | None = None) -> None:
        super().__init__()
        self._first = first
        self.runs = self.effects = 0
        self.answers: list[Permission] = []

    async def run(self, segment: Segment) -> Any:
        self.runs += 1
        if self._first is not None:
            await self.host.permit(self._first)
        answer = await self.host.permit(bash(self.runs))
        self.answers.append(answer)
        if answer.allowed:
            self.effects += 1
            yield ToolFinished("Bash", True, "made")
        yield EngineDone("ok", text="done")


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Program:
    """The engine of every agent."""
    made = Program()
    monkeypatch.setattr(EngineRegistry, "get", lambda registry, name: made)
    return made


async def asked(house: VirtualDaemon, text: str = "go") -> tuple[str, str]:
    """A message that waits for a person, and the question."""
    message = await house.said("ann", text)
    question = await open_question(house)
    assert await house.state_of(message) == "leased"
    return message, question.question_id


async def answered(house: VirtualDaemon, message: str, question: str) -> str:
    await house.daemon.mailbox.questions.answer(question, "once", OPERATOR)
    return (await house.daemon.mailbox.queue.wait_done(message, 600)).result_text


async def test_a_kill_while_waiting_runs_nothing_again_until_there_is_an_answer(
    household: Open, program: Program
) -> None:
    house = await household(agent("ann"), config=LONG)
    message, question = await asked(house)
    for _ in range(6):
        await house.die()
        await house.clock.sleep(3600)
        await house.start()
        await house.clock.sleep(60)
        assert await house.state_of(message) == "parked"
    assert program.runs == 1, "no attempt is made while nobody has answered"
    assert await answered(house, message, question) == "done"
    assert (program.runs, program.effects) == (2, 1)
    assert await house.sql("SELECT count(*) FROM questions") == [(1,)]


async def test_an_end_in_order_does_not_wait_for_a_person(
    household: Open, program: Program
) -> None:
    house = await household(agent("ann"), config=LONG)
    message, question = await asked(house)
    began = house.clock.monotonic()
    await house.stop()
    assert house.clock.monotonic() - began < 5.0, "30 s are given to turns that work"
    await house.start()
    assert await house.state_of(message) == "parked"
    assert program.runs == 1
    assert await answered(house, message, question) == "done"
    assert program.effects == 1


async def test_a_turn_let_go_gives_its_place_and_waits_on(
    household: Open, program: Program
) -> None:
    house = await household(agent("ann", slots=1), config=LONG)
    message, question = await asked(house)
    await let_go(house, message)
    assert await answered(house, message, question) == "done"
    assert (program.runs, program.effects) == (2, 1)


async def test_a_stop_ends_what_waits_on(household: Open, program: Program) -> None:
    house = await household(agent("ann"), config=LONG)
    message, _ = await asked(house)
    await let_go(house, message)
    await house.command("ann", "/stop")
    assert await house.state_of(message) == "cancelled"
    assert await house.daemon.mailbox.questions.list() == []
    assert program.effects == 0


async def test_an_answer_that_comes_too_late_is_told_to_the_turn(
    household: Open, program: Program
) -> None:
    house = await household(agent("ann"))
    message, _ = await asked(house)
    await let_go(house, message)
    await house.clock.sleep(601)
    await house.daemon.mailbox.deadlines.expire()
    await house.daemon.mailbox.queue.wait_done(message, 600)
    (answer,) = program.answers
    assert not answer.allowed
    assert "Nobody answered" in answer.reason


async def test_the_words_of_a_denial_are_told_apart_from_the_denial(
    household: Open, program: Program
) -> None:
    house = await household(agent("ann"), config=LONG)
    message, question = await asked(house)
    await house.daemon.mailbox.questions.answer(question, "deny: use staging", OPERATOR)
    await house.daemon.mailbox.queue.wait_done(message, 600)
    (answer,) = program.answers
    assert (answer.allowed, answer.words) == (False, "use staging")
    assert "use staging" in answer.reason


async def test_a_turn_with_work_under_way_is_not_let_go(household: Open, program: Program) -> None:
    program._first = PermissionRequest("w", "Write", {"file_path": "a.txt"})
    house = await household(agent("ann"), config=LONG)
    message, question = await asked(house)
    assert not is_let_go(house), "it writes, and nobody could tell what has become of it"
    assert await answered(house, message, question) == "done"
    assert (program.runs, program.effects) == (1, 1)
