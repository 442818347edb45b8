"""Who may answer a question."""

import pytest

from agentsup.model.principal import OPERATOR, SYSTEM, PersonRole, Principal, PrincipalKind
from agentsup.model.question import Question, QuestionState, Who, may_answer


def person(name: str, role: PersonRole) -> Principal:
    return Principal(PrincipalKind.PERSON, name, name, role)


ANN = person("ann", PersonRole.USER)
BEN = person("ben", PersonRole.USER)
EVE = person("eve", PersonRole.VIEWER)
BOSS = person("boss", PersonRole.OPERATOR)
PEER = Principal(PrincipalKind.AGENT, "ag_1", "bob", PersonRole.USER)


@pytest.mark.parametrize(
    "who, allowed",
    [
        (Who.PEOPLE, {ANN, BEN, PEER, BOSS, OPERATOR, SYSTEM}),
        (Who.ASKER, {ANN, BOSS, OPERATOR, SYSTEM}),
        (Who.OPERATORS, {BOSS, OPERATOR, SYSTEM}),
    ],
)
def test_who_may_answer_what_was_asked_about_anns_message(
    who: Who, allowed: set[Principal]
) -> None:
    question = Question(
        "q_1", "a", "s", "m", "question", "?", (), QuestionState.OPEN, "", 1, None, None, "", who
    )
    everybody = {ANN, BEN, EVE, BOSS, PEER, OPERATOR, SYSTEM}
    assert {one for one in everybody if may_answer(question, ANN, one)} == allowed


def test_a_viewer_never_answers_not_even_about_an_own_message() -> None:
    question = Question(
        "q_1", "a", "s", "m", "question", "?", (), QuestionState.OPEN, "", 1, None, None, ""
    )
    assert not may_answer(question, EVE, EVE)


@pytest.mark.parametrize(
    "kind, allowed",
    [("question", True), ("ask_parent", True), ("approval", False), ("uncertain", False)],
)
@pytest.mark.parametrize("who", [Who.PEOPLE, Who.ASKER])
def test_an_agent_gives_no_leave_not_even_for_work_that_it_asked_for(
    kind: str, allowed: bool, who: Who
) -> None:
    question = Question(
        "q_1", "a", "s", "m", kind, "?", (), QuestionState.OPEN, "", 1, None, None, "", who
    )
    assert may_answer(question, PEER, PEER) is allowed
    assert may_answer(question, PEER, OPERATOR)
