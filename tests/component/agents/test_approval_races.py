"""Asking, answering, running out of time, taking back and dying, in any order: a call that got leave
is made exactly once, counted in a file outside the store. ``TEST_APPROVALS`` says in how many
interleavings (150; ``make sim`` asks for 5,000)."""

from __future__ import annotations

import os
import random
from collections import Counter
from typing import Any

import pytest

from agentsup.approvals import Grants
from agentsup.model.errors import AgentsupError
from agentsup.model.message import TERMINAL
from agentsup.model.principal import PersonRole, Principal, PrincipalKind
from tests.component.agents.shared import give_append, log_of
from tests.component.conftest import Open
from tests.support.virtual_daemon import VirtualDaemon, agent

pytestmark = pytest.mark.virtual

OTTO = Principal(PrincipalKind.PERSON, "otto", "Otto", PersonRole.OPERATOR)
CASES = int(os.environ.get("TEST_APPROVALS", "150"))
PARTS = 30
ANSWERS = ("once", "run", "always", "deny", "deny: not now")
SKIP = "skip it"
"""To a call of unknown effect: other answers ask for it again, or call it made."""
ACTS = (*("answer",) * 5, "expire", "kill", "stop", "revoke", "twice", "pass", "pass")


@pytest.fixture(autouse=True)
def append_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    give_append(monkeypatch, is_by_call=True, pause_s=0.5)


def ann() -> dict[str, Any]:
    steps = [{"tool": {"name": "append", "args": {"text": text}}} for text in ("x", "y", "x")]
    return agent("ann", {"match": "go", "steps": [*steps, {"say": "$result"}]})


async def check(house: VirtualDaemon) -> None:
    """What happened has leave, what had leave in a turn that was finished happened, none twice."""
    happened = Counter(log_of(house))
    assert set(happened.values()) <= {1}, happened
    states = dict(await house.sql("SELECT call_id, state FROM tool_calls"))
    for call_id, state in states.items():
        if state == "done":
            assert happened[call_id] == 1, call_id
    for (call_id,) in await house.sql(
        "SELECT q.call_id FROM questions AS q JOIN messages AS m USING (message_id)"
        " WHERE m.state = 'done' AND q.state = 'answered' AND q.decision = 'once'"
    ):
        assert happened[call_id] == 1 or states[call_id] == "skipped", call_id
    given = {
        row[0].rpartition(":")[0]
        for row in await house.sql(
            "SELECT call_id FROM questions WHERE state = 'answered' AND decision <> 'deny'"
        )
    }
    wide = await house.sql("SELECT message_id, scope FROM grants")
    for call_id in happened:
        is_asked = call_id.rpartition(":")[0] in given
        is_wide = any(
            scope == "always" or call_id.startswith(f"{message}:") for message, scope in wide
        )
        assert is_asked or is_wide, call_id


async def act(house: VirtualDaemon, chance: random.Random, name: str) -> None:
    mailbox = house.daemon.mailbox
    open_now = await mailbox.questions.list()
    try:
        match name:
            case "answer" if open_now:
                one = chance.choice(open_now)
                options = [a for a in ANSWERS if a.split(":")[0] in one.options] or [SKIP]
                await mailbox.questions.answer(one.question_id, chance.choice(options), OTTO)
            case "twice" if open_now:
                answer = SKIP if SKIP in open_now[0].options else open_now[0].options[0]
                for _ in range(2):
                    await mailbox.questions.answer(open_now[0].question_id, answer, OTTO)
            case "expire":
                await house.clock.sleep(601)
                await mailbox.deadlines.expire()
            case "kill":
                await house.restart(kill=True)
            case "stop":
                await house.command("ann", "/stop", who=OTTO)
            case "revoke":
                grants = Grants(house.db, house.clock)
                for grant in await grants.all():
                    await grants.revoke(grant.grant_id, OTTO)
    except AgentsupError:
        return


async def play(house: VirtualDaemon, chance: random.Random) -> None:
    said = [await house.said("ann", "go", who=OTTO, conversation="local")]
    for _ in range(chance.randint(2, 6)):
        await act(house, chance, chance.choice(ACTS))
        if chance.random() < 0.6:
            await house.clock.sleep(chance.choice((0.0, 0.0, 0.05, 1.0)))
        if chance.random() < 0.15:
            said.append(await house.said("ann", "go", who=OTTO, conversation="other"))
    for message in said:
        await over(house, message)
    await check(house)


async def over(house: VirtualDaemon, message: str) -> None:
    """Answer whatever is still asked, until the message has ended."""

    async def is_over() -> bool:
        for one in await house.daemon.mailbox.questions.list():
            answer = SKIP if one.kind == "uncertain" else one.options[0]
            await house.daemon.mailbox.questions.answer(one.question_id, answer, OTTO)
        return (await house.daemon.mailbox.messages.get(message)).state in TERMINAL

    await house.until(is_over)


@pytest.mark.timeout(0 if "TEST_APPROVALS" in os.environ else 60)
@pytest.mark.parametrize("part", range(PARTS))
async def test_a_call_with_leave_is_made_exactly_once(household: Open, part: int) -> None:
    house = await household(ann())
    for case in range(CASES // PARTS):
        await play(house, random.Random(f"{part}.{case}"))
