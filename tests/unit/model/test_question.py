"""Who may answer a question."""

from __future__ import annotations

import pytest

from agentsup.model.principal import OPERATOR, SYSTEM, PersonRole, Principal, PrincipalKind
from agentsup.model.question import AnswerableBy, Question, QuestionState, may_answer


def person(name: str, role: PersonRole) -> Principal:
    return Principal(PrincipalKind.PERSON, name, name, role)


ANN = person("ann", PersonRole.USER)
BEN = person("ben", PersonRole.USER)
EVE = person("eve", PersonRole.VIEWER)
BOSS = person("boss", PersonRole.OPERATOR)
PEER = Principal(PrincipalKind.AGENT, "ag_1", "bob", PersonRole.USER)


def asked(kind: str, who: AnswerableBy) -> Question:
    return Question(
        "q_1", "a", "s", "m", kind, "?", (), QuestionState.OPEN, "", 1, None, None, "", who
    )


@pytest.mark.parametrize(
    "who, allowed",
    [
        (AnswerableBy.PEOPLE, {ANN, BEN, PEER, BOSS, OPERATOR, SYSTEM}),
        (AnswerableBy.ASKER, {ANN, BOSS, OPERATOR, SYSTEM}),
        (AnswerableBy.OPERATORS, {BOSS, OPERATOR, SYSTEM}),
    ],
)
def test_who_may_answer_what_was_asked_about_anns_message(
    who: AnswerableBy, allowed: set[Principal]
) -> None:
    question = asked("question", who)
    everybody = {ANN, BEN, EVE, BOSS, PEER, OPERATOR, SYSTEM}
    assert {one for one in everybody if may_answer(question, ANN, one)} == allowed


def test_a_viewer_never_answers_not_even_about_an_own_message() -> None:
    question = asked("question", AnswerableBy.PEOPLE)
    assert not may_answer(question, EVE, EVE)


@pytest.mark.parametrize(
    "kind, allowed",
    [("question", True), ("ask_parent", True), ("approval", False), ("uncertain", False)],
)
@pytest.mark.parametrize("who", [AnswerableBy.PEOPLE, AnswerableBy.ASKER])
def test_an_agent_gives_no_leave_not_even_for_work_that_it_asked_for(
    kind: str, allowed: bool, who: AnswerableBy
) -> None:
    question = asked(kind, who)
    assert may_answer(question, PEER, PEER) is allowed
    assert may_answer(question, PEER, OPERATOR)


@pytest.mark.parametrize(
    "kind, allowed",
    [("question", True), ("ask_parent", True), ("approval", False), ("uncertain", False)],
)
def test_who_was_an_operator_allows_nothing_that_was_asked_of_an_operator(
    kind: str, allowed: bool
) -> None:
    question = asked(kind, AnswerableBy.ASKER)
    assert may_answer(question, BOSS, person("boss", PersonRole.USER)) is allowed
    assert may_answer(question, person("boss", PersonRole.USER), person("boss", PersonRole.USER))
