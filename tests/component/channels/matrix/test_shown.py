"""A call too long for messages in a room: allowed once its file is there, and not before."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from agentsup.channels.core.errors import NotAllowed, OutcomeUnknown
from agentsup.channels.matrix.errors import EventTooLarge
from agentsup.mailbox.questions.rendering import MESSAGE_CHARS
from agentsup.model.question import APPROVAL, AskedCall, Question
from tests.component.channels.matrix.menu_fixture import MatrixMenuFixture, menu_rigged
from tests.support.matrix_rooms import RoomEvent, Trouble

pytestmark = pytest.mark.virtual

OPTIONS = ("once", "run", "deny")
CUT = AskedCall("{}", "d" * 64, "z" * (MESSAGE_CHARS + 1) + " hidden")


@pytest_asyncio.fixture
async def rig(tmp_path: Path) -> AsyncIterator[MatrixMenuFixture]:
    async with menu_rigged(tmp_path) as rig:
        yield rig


async def approve(rig: MatrixMenuFixture) -> tuple[Question, RoomEvent]:
    return await rig.ask(
        "May I?", options=OPTIONS, kind=APPROVAL, tool="exec", call=CUT, call_id="m:k:1"
    )


async def test_a_cut_call_is_allowed_below_its_file(rig: MatrixMenuFixture) -> None:
    question, card = await approve(rig)
    told = await rig.say("once", card)
    assert told is not None
    assert "A part of the call only was shown" in told
    assert "1. Show all of it\n2. Deny" in rig.shown(card)
    assert await rig.react(card, "1️⃣")
    file, text = rig.rooms.messages()[-2:]
    assert rig.rooms.files[str(file.content["url"])].decode().endswith(" hidden")
    assert "in the file above" in rig.shown(text)
    assert await rig.react(text, "1️⃣")
    assert await rig.answer_of(question) == ("answered", "once")


@pytest.mark.parametrize(
    "call, trouble",
    [
        ("upload", EventTooLarge(413, "Upload request body is too large", "M_TOO_LARGE")),
        ("upload", NotAllowed(403, "no media here", "M_FORBIDDEN")),
        ("upload", OSError(5, "Input/output error")),
        ("send", NotAllowed(403, "no files here", "M_FORBIDDEN")),
    ],
)
async def test_a_file_that_is_refused_allows_nothing(
    rig: MatrixMenuFixture, call: str, trouble: Trouble
) -> None:
    question, card = await approve(rig)
    rig.rooms.before[call] = [trouble]
    await rig.react(card, "1️⃣")
    await rig.quiet(60.0)
    assert "All of the call can't be shown here" in rig.shown(rig.last())
    assert not any("in the file above" in text for text in rig.rooms.texts())
    told = await rig.say("once", card)
    assert told is not None
    assert "not certain" in told
    assert (await rig.answer_of(question))[0] == "open"
    # More of it can be asked for again, and then it can be allowed.
    assert await rig.say("1", card) is not None
    assert "in the file above" in rig.shown(rig.last())
    await rig.react(rig.last(), "1️⃣")
    assert await rig.answer_of(question) == ("answered", "once")


async def test_a_file_in_doubt_allows_nothing_until_it_is_shown_again(
    rig: MatrixMenuFixture,
) -> None:
    question, card = await approve(rig)
    rig.rooms.before["send"] = [OutcomeUnknown("the line was cut")] * 9
    await rig.react(card, "1️⃣")
    await rig.quiet(600.0)
    assert "may not have reached you" in rig.shown(rig.last())
    assert not any("in the file above" in text for text in rig.rooms.texts())
    told = await rig.say("once", card)
    assert told is not None
    assert "not certain" in told
    assert (await rig.answer_of(question))[0] == "open"
    assert await rig.say("1", card) is not None
    await rig.react(rig.last(), "1️⃣")
    assert await rig.answer_of(question) == ("answered", "once")
