"""Who may name what: keys that never meet, chats that are a turn's own, conversations of people."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsup.mailbox.messages import keys as message_keys
from agentsup.model.errors import BadRequest, Forbidden, NotFound
from agentsup.model.message import DeliverTo
from agentsup.model.principal import (
    NOBODY,
    OPERATOR,
    OPERATORS,
    PersonRole,
    Principal,
    PrincipalKind,
)

ANNA = Principal(PrincipalKind.PERSON, "anna", "Anna", PersonRole.USER)
OLGA = Principal(PrincipalKind.PERSON, "olga", "Olga", PersonRole.OPERATOR)
ADA = Principal(PrincipalKind.AGENT, "agt_ada", "ada", behalf="person:anna")
words = st.text(min_size=1, max_size=20)


def key(caller: Principal, person: str, thread: str, sender: str = "agt_ada") -> str:
    return message_keys.session_key(
        caller, sender_id=sender, name="ada", person=person, thread=thread
    )


def test_whose_work_it_is() -> None:
    assert [each.person for each in (ANNA, OLGA, OPERATOR, ADA)] == [
        "person:anna",
        OPERATORS,
        OPERATORS,
        "person:anna",
    ]
    named_so = Principal(PrincipalKind.PERSON, "operator", role=PersonRole.USER)
    assert named_so.person not in (OPERATORS, NOBODY, "")
    assert Principal.from_json(ADA.to_json()) == ADA


@given(words, words, words, words)
def test_threads_of_two_agents_or_people_never_meet(a: str, b: str, c: str, d: str) -> None:
    """Whatever they are called, also with the marks of keys in their names."""
    first = key(ADA, f"person:{a}", c, sender=b)
    second = key(ADA, f"person:{b}", d, sender=a)
    assert (first == second) == (a == b and c == d)
    assert first.startswith("thread:")


@given(words)
def test_only_an_operator_names_a_raw_key(text: str) -> None:
    for thread in (text, f"chat:telegram:{text}", f"ses_{text}", f"ia-{text}", f"thread:{text}"):
        assert key(OPERATOR, OPERATORS, thread) == thread
        for who in (ADA, ANNA):
            made = key(who, "person:anna", thread)
            assert made != thread
            assert made.startswith("thread:agt_ada:person%3Aanna:")


def test_a_peer_has_a_session_for_each_person() -> None:
    people = ("person:anna", "person:ben", OPERATORS)
    keys = [key(ADA, person, "") for person in people]
    assert len(set(keys)) == 3
    assert keys[2] == key(ADA, "", "") == "ia-ada"


CHAT = DeliverTo("chat", agent_id="agt_ada", channel="telegram", conversation="77/5")
CHAIN = DeliverTo("mailbox", agent_id="agt_ada", session_id="ses_1", then=CHAT)


def test_the_chat_at_the_end_of_the_way_back() -> None:
    assert message_keys.root_chat(CHAIN) == message_keys.root_chat(CHAT) == CHAT
    assert message_keys.root_chat(DeliverTo("http")) is None


@pytest.mark.parametrize(
    "known, chosen",
    [
        ([("console", "7"), ("telegram", "7")], ("telegram", "7")),
        ([("console", "7"), ("web", "7"), ("matrix", "7")], ("matrix", "7")),
        ([("console", "7"), ("web", "7")], ("web", "7")),
        ([("console", "7")], ("console", "7")),
    ],
)
def test_a_platforms_chat_wins(known: list[tuple[str, str]], chosen: tuple[str, str]) -> None:
    assert message_keys.chosen_chat("ada", "7", "", known) == chosen


def test_an_unknown_chat_is_refused() -> None:
    for chat, topic in (("8", ""), ("7", "1"), ("", "")):
        with pytest.raises((NotFound, BadRequest)):
            message_keys.chosen_chat("ada", chat, topic, [("telegram", "7")])
    found = message_keys.chosen_chat("ada", "7", "1", [("telegram", "7/1"), ("telegram", "7")])
    assert found == ("telegram", "7/1")
    with pytest.raises(Forbidden):
        message_keys.check_chat_of_turn(None, "7", "")
    with pytest.raises(BadRequest):
        message_keys.check_chat_of_turn(None, "", "7")


def test_what_a_turn_may_use() -> None:
    parties = ("", NOBODY, OPERATORS, "person:anna", "person:ben")
    for mine, whose in product(parties, parties):
        wanted = not mine or whose in ("", NOBODY, mine)
        assert message_keys.is_of_work(mine, whose) == wanted


def test_who_enters_a_conversation() -> None:
    assert message_keys.may_enter(OPERATOR, "telegram", "1")
    assert message_keys.may_enter(ANNA, "web", "anna")
    assert message_keys.may_enter(ANNA, "web", "anna.garden")
    for channel, conversation in (("web", "local"), ("web", "ben"), ("console", "anna")):
        assert not message_keys.may_enter(ANNA, channel, conversation)
        assert not message_keys.may_enter(ADA, channel, conversation), "no agent is a person"
