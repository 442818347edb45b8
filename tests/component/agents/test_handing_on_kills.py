"""Work handed on, a question on its way back, and a kill at any moment: one result, told once."""

from __future__ import annotations

from typing import Any

import pytest

from agentsup.model.errors import Conflict
from agentsup.model.principal import OPERATOR
from tests.component.agents.shared import rule
from tests.component.conftest import Open
from tests.support.virtual_daemon import VirtualDaemon, agent

pytestmark = pytest.mark.virtual

WORK_S = 2.0
"""How long each step of the work takes."""
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "a team": ("dispatch_team", {"team": "t", "prompt": "paint"}),
    "one that fits": ("route_to_agent", {"capability": "paint", "prompt": "paint"}),
    "in another's place": ("delegate_task", {"prompt": "paint", "agent": "ben"}),
    "in the background": (
        "delegate_task",
        {"prompt": "paint", "agent": "ben", "background": True, "label": "x"},
    ),
    "a task": ("task_create", {"prompt": "paint", "agent": "ben"}),
}


def cast(way: str) -> list[dict[str, Any]]:
    """Ann hands work on to ben, who asks which colour; each step takes a while."""
    pause, (tool, args) = {"sleep": WORK_S}, WAYS[way]
    ask = {"question": {"text": "Which?", "options": ["red", "blue"]}}
    ann = (
        rule("go", pause, {"tool": {"name": tool, "args": args}}, {"say": "heard: $result"}),
        rule("painted (.*)", pause, {"say": "heard: $0"}),
    )
    ben = rule("paint", pause, ask, pause, {"say": "painted $result"})
    return [
        agent("ann", *ann, tools=["*", tool]),
        agent("ben", ben, team="t", capabilities=["paint"]),
    ]


async def answered(house: VirtualDaemon) -> None:
    """Whoever sees the question presses the same button, however often."""
    for question in await house.daemon.mailbox.questions.list():
        try:
            await house.daemon.mailbox.questions.answer(question.question_id, "blue", OPERATOR)
        except Conflict:
            continue


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kills", [(n * 1.4,) for n in range(8)] + [(1.0, 1.0), (3.5, 0.3, 3.0)])
async def test_one_result_is_told_once_whenever_the_daemon_dies(
    household: Open, way: str, kills: tuple[float, ...]
) -> None:
    house = await household(*cast(way))
    await house.said("ann", "go")
    for pause_s in kills:
        await house.clock.sleep(pause_s)
        await house.restart(kill=True)
        await answered(house)
    for _ in range(10):
        await house.clock.sleep(20)
        await answered(house)
    told = [text for text in house.texts() if "painted blue" in text]
    assert len(told) == 1, house.texts()
    assert await house.sql("SELECT count(*) FROM runs") == [(1,)]
    assert await house.sql("SELECT count(*) FROM questions WHERE state = 'answered'") == [(1,)]
    open_now = "SELECT count(*) FROM messages WHERE state IN ('queued', 'leased', 'parked')"
    assert await house.sql(open_now) == [(0,)]
    assert await house.sql("SELECT count(*) FROM messages WHERE state = 'dead'") == [(0,)]


@pytest.mark.parametrize("way", ["a team", "one that fits"])
async def test_a_result_that_comes_while_its_asker_is_down_is_told_once(
    household: Open, way: str
) -> None:
    """The asker's turn is put down; the result comes; the turn begins anew and waits again."""
    house = await household(*cast(way))
    await house.said("ann", "go")
    await house.clock.sleep(6)
    await house.daemon.control.stop_agent("ann", OPERATOR)
    await house.until(lambda: house.state("ann") == "stopped")
    await answered(house)
    await house.clock.sleep(10)
    assert await house.sql("SELECT count(*) FROM messages WHERE kind = 'reply'") == [(1,)]
    await house.daemon.control.start_agent("ann", OPERATOR)
    await house.clock.sleep(60)
    told = [text for text in house.texts() if "painted blue" in text]
    assert len(told) == 1, house.texts()
    assert await house.sql("SELECT error_code FROM messages WHERE kind = 'reply'") == [
        ("collected",)
    ]
