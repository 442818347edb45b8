"""A call too long for messages over the Bot API: allowed once its file is there, and not before."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from agentsup.mailbox.questions.rendering import MESSAGE_CHARS
from agentsup.mailbox.work import Work
from agentsup.model.engine import Suspended
from agentsup.model.question import APPROVAL, AskedCall, Question, QuestionState
from tests.component.channels.telegram.fixture import TelegramFixture, rigged

OPTIONS = ("once", "run", "deny")
ALL, ONCE = "Show all of it", "Once"
CUT = AskedCall("{}", "d" * 64, "z" * (MESSAGE_CHARS + 1) + " hidden")
REFUSED = {"status": 400, "description": "Bad Request: not enough rights to send documents"}


@pytest_asyncio.fixture
async def rig(tmp_path: Path) -> AsyncIterator[TelegramFixture]:
    async with rigged(tmp_path) as rig:
        await rig.start()
        yield rig


class Fixture:
    """A turn that waits for the approval of one call, and Ann, who may give it."""

    def __init__(self, rig: TelegramFixture, call: AskedCall) -> None:
        self.rig = rig
        self.people = rig.people
        self._call = call
        self._goes_on = rig.agent.handle

    async def handle(self, work: Work) -> None:
        """Implements ``Handler``: asks, and goes on as the agent does."""
        self.rig.agent.handle = self._goes_on  # type: ignore[method-assign]  # as it was
        ask = Suspended(
            b"", "May I?", OPTIONS, kind=APPROVAL, tool="exec", call=self._call, call_id="m:k:1"
        )
        rig = self.rig
        await rig.database.write(
            lambda tx: rig.mailbox.questions.park_tx(tx, work.lease, ask) and None
        )

    async def begin(self) -> dict[str, Any]:
        """The message of the card."""
        self.rig.agent.handle = self.handle  # type: ignore[method-assign]  # it asks first
        await self.people.say(self.rig.chat, "go")
        record = await self.people.wait_message(
            self.rig.chat, lambda message: "May I?" in message.get("text", "")
        )
        message: dict[str, Any] = record["message"]
        return message

    async def press(self, message: dict[str, Any], label: str, **more: Any) -> str:
        query = await self.people.press(
            self.rig.chat, message["message_id"], text=label, user=self.rig.ann, **more
        )
        return str((await self.people.pressed(query))["text"])

    async def question(self) -> Question:
        (found,) = await self.rig.mailbox.questions.list(None)
        return found

    async def with_answers(self) -> dict[str, Any]:
        """The message below all of the call."""
        record = await self.people.wait_message(
            self.rig.chat,
            lambda message: (
                "in the file above" in message.get("text", "") and bool(message.get("reply_markup"))
            ),
        )
        message: dict[str, Any] = record["message"]
        return message

    async def is_refused_in_every_way(self, card: dict[str, Any]) -> None:
        """No press that somebody makes up, no words and no command allow the call."""
        question_id = (await self.question()).question_id
        query = await self.people.press(
            self.rig.chat, card["message_id"], data=f"q:{question_id}:0", user=self.rig.ann, force=True
        )  # fmt: skip
        assert "not certain" in (await self.people.pressed(query))["text"]
        await self.people.say(self.rig.chat, "once", reply_to=card["message_id"])
        await self.people.wait_text(self.rig.chat, "not certain that all of the call arrived")
        assert (await self.question()).state is QuestionState.OPEN


@pytest.mark.parametrize(
    "fault, facts, told",
    [
        ("error", REFUSED, "All of the call can't be shown here"),
        ("error", {"status": 413, "description": "Request Entity Too Large"}, "can't be shown"),
        ("cut_before", {}, "may not have reached you: “call.txt”"),
        ("cut_after", {}, "may not have reached you: “call.txt”"),
    ],
)
async def test_no_call_is_allowed_whose_file_did_not_surely_arrive(
    rig: TelegramFixture, fault: str, facts: dict[str, Any], told: str
) -> None:
    scene = Fixture(rig, CUT)
    card = await scene.begin()
    await rig.people.fault(fault, method="sendDocument", count=1, **facts)
    assert await scene.press(card, ALL) == "All of the call is shown below."
    await rig.people.wait_text(rig.chat, told)
    found = [record["message"] for record in await rig.people.messages(rig.chat)]
    assert not any(ONCE in str(message.get("reply_markup")) for message in found)
    assert "in the file above" not in str(found)
    await scene.is_refused_in_every_way(card)
    # The same button shows it again, and then it can be allowed.
    await scene.press(card, ALL)
    assert await scene.press(await scene.with_answers(), ONCE) == "Answered: Once"
    await rig.people.wait_text(rig.chat, "echo: go")
    assert (await scene.question()).answer == "once"
    parts = await rig.rows("SELECT state FROM outbox WHERE body ->> '$.stage' = 'whole'")
    assert parts == [("dropped" if fault == "error" else "unknown",), ("delivered",)]


async def test_shown_again_by_its_note_it_can_be_allowed(rig: TelegramFixture) -> None:
    scene = Fixture(rig, CUT)
    card = await scene.begin()
    await rig.people.fault("cut_before", method="sendDocument", count=1)
    await scene.press(card, ALL)
    note = await rig.people.wait_text(rig.chat, "may not have reached you")
    (button,) = note["message"]["reply_markup"]["inline_keyboard"][0]
    await scene.press(note["message"], button["text"])
    assert await scene.press(await scene.with_answers(), ONCE) == "Answered: Once"


async def test_words_allow_no_call_whose_card_is_in_doubt_and_its_buttons_do(
    rig: TelegramFixture,
) -> None:
    """Whoever can press a button of a card that holds all of the call has it in front of them."""
    scene = Fixture(rig, AskedCall("{}", "d" * 64))
    await rig.people.fault("cut_after", method="sendMessage", count=1)
    card = await scene.begin()
    await rig.people.wait_text(rig.chat, "may not have reached you")
    await rig.people.say(rig.chat, "once")
    await rig.people.wait_text(rig.chat, "not certain that all of the call arrived")
    assert (await scene.question()).state is QuestionState.OPEN
    assert await scene.press(card, ONCE) == "Answered: Once"
