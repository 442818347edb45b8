"""What a part of an approval offers, and how a call too long for messages is shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from agentsup.channels.core.sending import DeliverySettings
from agentsup.channels.matrix import choices
from agentsup.channels.matrix import outgoing as matrix
from agentsup.channels.telegram import outgoing
from agentsup.channels.telegram import outgoing as telegram
from agentsup.mailbox.questions.rendering import MESSAGE_CHARS, Stage, body_of
from agentsup.model.channel import OutboxPart
from agentsup.model.question import APPROVAL, AskedCall, Question, QuestionState

OPTIONS = ("once", "run", "pattern:make *", "any", "deny")
SHORT = Question(
    "q_1", "a", "s", "m", APPROVAL, "May I?", OPTIONS, QuestionState.OPEN, "", 0, None, None, "",
    tool="exec", call=AskedCall("{}", "d" * 64),
)  # fmt: skip
CUT = replace(SHORT, call=AskedCall("{}", "d" * 64, "z" * (MESSAGE_CHARS + 1) + " hidden"))


def part(body: dict[str, Any]) -> OutboxPart:
    return OutboxPart(1, "m", "a", "s", "telegram", "7", 0, "question", body, 0)


def meanings(question: Question, stage: Stage = Stage.CARD) -> list[str]:
    body = body_of(question, stage)
    shown = outgoing.reply_markup("question", body, is_private=True)
    assert shown is not None
    pressed = [b["callback_data"] for row in shown["inline_keyboard"] for b in row]
    assert pressed == [each.data for each in choices.choices_of("question", body)]
    assert all(len(data.encode()) <= 64 for data in pressed)
    return [data.rpartition(":")[2] for data in pressed]


def test_a_cut_card_offers_to_deny_and_to_show_all() -> None:
    assert meanings(SHORT) == ["0", "1", "2", "3", "4"]
    assert meanings(CUT) == ["all", "4"]
    assert meanings(CUT, Stage.WHOLE) == ["0", "1", "2", "3", "4"]
    assert meanings(CUT, Stage.CONFIRM) == meanings(SHORT, Stage.CONFIRM) == ["sure", "4"]
    assert [body_of(q)["is_whole"] for q in (SHORT, CUT)] == [True, False]
    assert not body_of(CUT, Stage.CONFIRM)["is_whole"]


def test_to_deny_stands_apart() -> None:
    shown = outgoing.reply_markup(
        "question", body_of(replace(SHORT, options=("once", "run", "deny"))), is_private=True
    )
    assert shown is not None
    rows = [[button["text"] for button in row] for row in shown["inline_keyboard"]]
    assert rows == [["Once", "This run"], ["Deny"]]


async def test_a_long_call_goes_as_a_file_above_its_answers() -> None:
    body = body_of(CUT, Stage.WHOLE)
    folder = Path("/nowhere")
    sent = await telegram.pieces_of(part(body), DeliverySettings(folder), is_private=True)
    file, text = sent
    assert file.file is not None
    assert file.file.data.decode().endswith(" hidden")
    assert (file.method, file.markup, text.markup is None) == ("sendDocument", None, False)
    events = await matrix.pieces_of(part(body), DeliverySettings(folder))
    assert [event.file is not None for event in events] == [True, False]
    assert len(events[-1].choices) == len(OPTIONS)
