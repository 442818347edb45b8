"""An engine that says what can't be stored costs characters, never the turn or the stack."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentsup.engines.scripted.engine import ScriptedEngine
from agentsup.engines.scripted.script import Script, build_script
from agentsup.model.engine import EngineSpec
from tests.component.proofs.house import EVA, ProofDaemon, agent

pytestmark = pytest.mark.virtual

HALF = "x \ud800 y"
RULES: list[dict[str, Any]] = [
    {"match": "say", "steps": [{"say": HALF}]},
    {"match": "nul", "steps": [{"say": "a\0b"}]},
    {"match": "fail", "steps": [{"fail": HALF}]},
    {"match": "crash", "steps": [{"crash": HALF}]},
    {"match": "file", "steps": [{"file": HALF}]},
    {
        "match": "usage",
        "steps": [{"usage": {"input": 10**30, "output": 1, "usd": 1}}, {"say": "u"}],
    },
    {
        "match": "ask",
        "steps": [
            {"tool": {"name": "ask_agent", "args": {"to": "ann", "message": HALF}}},
            {"say": "heard $result"},
        ],
    },
    {
        "match": "tool",
        "steps": [{"tool": {"name": HALF, "args": {HALF: HALF}}}, {"say": "$result"}],
    },
    {
        "match": "question",
        "steps": [{"question": {"text": HALF, "options": [HALF]}}, {"say": "said $result"}],
    },
    {"match": "(.*)", "steps": [{"say": "echo $1"}]},
]


class Odd(ScriptedEngine):
    """Runs rules that no file could hold."""

    async def script_for(self, spec: EngineSpec) -> Script:
        return build_script(RULES, path="test")


@pytest.mark.parametrize(
    "text, told",
    [
        ("say", "x ? y"),
        ("nul", "a\0b"),
        ("fail", "x ? y"),
        ("crash", "x ? y"),
        ("file", "is not a file inside the workspace"),
        ("usage", "u"),
        ("ask", "heard echo x ? y"),
        ("tool", "there is no tool 'x ? y'"),
        ("question", "x ? y"),
    ],
)
async def test_each_way_to_say_half_a_character(tmp_path: Path, text: str, told: str) -> None:
    house = ProofDaemon(tmp_path, [agent("main"), agent("ann"), agent("bob")])
    house.use_engine("scripted", lambda: Odd(house.clock))
    async with house:
        message_id = await house.say("bob", text)
        await house.channel.wait_for(lambda: house.heard(told, "c1"), 60)
        await house.say("bob", "well", "c2")
        await house.channel.wait_for(lambda: house.heard("echo well"), 60)
        ((state, crashes),) = await house.sql(
            "SELECT state, crashes FROM messages WHERE message_id = ?", message_id
        )
        wanted = {"crash": ("dead", 2), "question": ("parked", 0)}.get(text, ("done", 0))
        assert (state, crashes) == wanted
        holds, sums = await house.daemon.mailbox.messages.conservation()
        assert holds, sums


async def test_the_answer_to_an_odd_question(tmp_path: Path) -> None:
    """The option a person presses is the one that was shown."""
    house = ProofDaemon(tmp_path, [agent("main")])
    house.use_engine("scripted", lambda: Odd(house.clock))
    async with house:
        await house.say("main", "question")
        await house.channel.wait_sent(1)
        (part,) = house.channel.sent
        (option,) = part.body["options"]
        await house.daemon.mailbox.questions.answer(part.body["question_id"], option, EVA)
        await house.channel.wait_for(lambda: house.heard("said x ? y"))
