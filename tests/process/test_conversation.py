"""One conversation over every transport: a real daemon as a process, a person, the same steps.

Whatever a person does in a day, in one chat, in this order: a text, a long answer with code and a
table, files both ways, questions, something beside, a correction, a stop, a kill in mid-answer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.process.conversation.console import console_stage
from tests.process.conversation.talker import HELD, ConversationFixture
from tests.process.conversation.telegram import telegram_stage
from tests.process.conversation.web import web_stage

PARAGRAPHS = [f"Paragraph {number} of the long answer: " + "word " * 30 for number in range(1, 41)]
CODE = [
    "def cell(a: int, b: int) -> str:",
    "    # <b>no markup</b> & *no emphasis*, `no code` _inside_",
    '    return "|".join([str(a), str(b)])',
]
TABLE = ["| plant | litres |", "|---|---:|", "| tomato | 12 |", "| bean | 8 |"]
LONG = [
    *(f"{text}\n\n" for text in PARAGRAPHS[:20]),
    "```python\n" + "\n".join(CODE) + "\n```\n\n",
    "\n".join(TABLE) + "\n\n",
    *(f"{text}\n\n" for text in PARAGRAPHS[20:]),
    "The long end.",
]
NUMBERS = [f"number {n}, " for n in range(1, 16)]
RULES: Sequence[Mapping[str, Any]] = [
    {"match": "long", "steps": [{"stream": {"chunks": LONG, "every": 0.01}}]},
    {
        "match": r"(?s)keep this\n\[file: (.+?) \((.+)\)\]",
        "steps": [{"say": "It is $2."}, {"file": "$1"}],
    },
    {
        "match": "choose",
        "steps": [
            {"question": {"text": "Which one?", "options": ["tea", "coffee"]}},
            {"say": "Then $result it is."},
        ],
    },
    {
        "match": "ask me",
        "steps": [{"question": {"text": "What is its name?"}}, {"say": "Hello to $result."}],
    },
    {
        "match": "wait",
        "steps": [{"tool": {"name": "exec", "args": {"argv": HELD}}}, {"say": "waited"}],
    },
    {
        "match": "count on",
        "steps": [{"stream": {"chunks": [*NUMBERS, *["and "] * 200, "counted on."], "every": 0.3}}],
    },
    {
        "match": "count",
        "steps": [{"stream": {"chunks": [*NUMBERS, "counted."], "every": 0.3}}],
    },
    {"match": "(.+)", "steps": [{"say": "you said $1"}]},
]
MakeStage = Callable[
    [Path, Sequence[Mapping[str, Any]]], AbstractAsyncContextManager[ConversationFixture]
]
STAGES: Mapping[str, MakeStage] = {
    "console": console_stage,
    "telegram": telegram_stage,
    "web": web_stage,
}


@pytest.fixture(params=STAGES)
async def stage(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[ConversationFixture]:
    async with STAGES[request.param](tmp_path, RULES) as made:
        yield made


@pytest.mark.timeout(180)
async def test_the_same_conversation_over_every_transport(stage: ConversationFixture) -> None:
    await converse(stage)


async def converse(stage: ConversationFixture) -> None:
    """The whole conversation; also for transports that need a heavy real part."""
    await _text(stage)
    await _long_answer(stage)
    await _files_both_ways(stage)
    await _questions(stage)
    await _beside(stage)
    await _correction(stage)
    await _stop_in_mid_stream(stage)
    await _kill_in_mid_stream(stage)


async def _text(stage: ConversationFixture) -> None:
    await stage.talker.say("good morning")
    assert (await stage.talker.hears("good morning")).text == "you said good morning"


async def _long_answer(stage: ConversationFixture) -> None:
    """Everything is there once and in order; code is code, and a table can be read."""
    await stage.talker.say("long")
    heard = await stage.talker.hears("The long end.", timeout_s=30.0)
    places = [heard.text.find(text.strip()) for text in PARAGRAPHS]
    assert -1 not in places
    assert places == sorted(places)
    assert all(heard.text.count(text.strip()) == 1 for text in PARAGRAPHS)
    code = [(language, text) for language, text in heard.code if language == "python"]
    assert [line for _, text in code for line in text.splitlines()] == CODE
    for cell in ("plant", "litres", "tomato", "12", "bean"):
        assert cell in heard.text


async def _files_both_ways(stage: ConversationFixture) -> None:
    data = bytes(range(256)) * 40
    await stage.talker.send_file("seeds.bin", data, "keep this")
    await stage.talker.hears("It is seeds.bin.")
    name, found = await stage.talker.file()
    assert name.endswith("seeds.bin")
    assert found == data


async def _questions(stage: ConversationFixture) -> None:
    await stage.talker.say("choose")
    asked = await stage.talker.question("Which one?")
    assert asked.options == ("tea", "coffee")
    await stage.talker.press(asked, "coffee")
    await stage.talker.hears("Then coffee it is.")
    await stage.talker.say("ask me")
    asked = await stage.talker.question("What is its name?")
    await stage.talker.type_answer(asked, "Rosa Lux")
    await stage.talker.hears("Hello to Rosa Lux.")


async def _beside(stage: ConversationFixture) -> None:
    """Another session of the same person: answered while the first is busy, and only there."""
    beside = await stage.talker.aside("garden")
    await stage.talker.say("wait")
    await beside.say("in the garden")
    await beside.hears("you said in the garden")
    assert "waited" not in " ".join((await stage.talker.transcript())[-3:])
    stage.let_go()
    await stage.talker.hears("waited")
    assert not any("in the garden" in text for text in await stage.talker.transcript())
    assert not any("waited" in text for text in await beside.transcript())


async def _correction(stage: ConversationFixture) -> None:
    """A text that waits behind a running one is corrected and answered once, as corrected."""
    await stage.talker.say("wait")
    said = await stage.talker.say("water the rozes")
    await stage.talker.correct(said, "water the roses")
    await stage.waits("water the roses")
    stage.let_go()
    await stage.talker.hears("you said water the roses")
    assert not any("you said water the rozes" in t for t in await stage.talker.transcript())


async def _stop_in_mid_stream(stage: ConversationFixture) -> None:
    await stage.talker.say("count on")
    await stage.talker.sees("number 2,")
    await stage.talker.say("/stop")
    await stage.talker.hears("Stopped: 1 running answer")
    await stage.talker.say("after the stop")
    await stage.talker.hears("you said after the stop")
    assert not any("counted on." in text for text in await stage.talker.transcript())


async def _kill_in_mid_stream(stage: ConversationFixture) -> None:
    """The answer comes once and whole, and nothing half-written stays."""
    before = len(await stage.talker.transcript())
    await stage.talker.say("count")
    # Not the first piece: where an answer is a message that grows, the kill may cost its id.
    await stage.talker.sees("number 9,")
    stage.daemon.kill()
    await stage.daemon.ended()
    await stage.daemon.start()
    await stage.talker.come_back()
    heard = await stage.talker.hears("counted.", timeout_s=30.0)
    assert "".join([*NUMBERS, "counted."]) in heard.text
    await stage.talker.say("after the kill")
    await stage.talker.hears("you said after the kill")
    transcript = (await stage.talker.transcript())[before:]
    assert sum("counted." in text for text in transcript) == 1
    assert sum("number 2," in text and "counted." not in text for text in transcript) == 0
