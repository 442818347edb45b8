"""The answers below a task's card."""

from __future__ import annotations

import pytest

from agentsup.catalogue import words
from agentsup.commands.tasks import _answers
from agentsup.model.question import APPROVAL, AskedCall, Question, QuestionState


@pytest.mark.parametrize(
    "kind, options, commands",
    [
        (
            APPROVAL,
            ("once", "run", "pattern:ls *", "any", "deny"),
            ["/question q_1", "/task answer task_1 q_1 deny"],
        ),
        (
            "question",
            ("red", "once"),
            ["/task answer task_1 q_1 red", "/task answer task_1 q_1 once"],
        ),
    ],
)
def test_what_allows_a_call_stands_below_all_of_it_only(
    kind: str, options: tuple[str, ...], commands: list[str]
) -> None:
    question = Question(
        "q_1", "a", "s", "m", kind, "May I?", options, QuestionState.OPEN, "", 0, None, None, "",
        tool="exec", call=AskedCall("{}", "d" * 64),
    )  # fmt: skip
    shown = _answers("task_1", question, words("en"))
    assert [button.command for row in shown for button in row] == commands
