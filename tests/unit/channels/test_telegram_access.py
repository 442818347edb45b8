"""The one rule of access: no event of a stranger is let through, whatever its kind and wherever."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsup.channels.core.receiving.gate import AccessReason
from agentsup.channels.core.receiving.raw import Malformed
from agentsup.channels.telegram.access import may, named, remedy
from agentsup.channels.telegram.content import BotUser
from agentsup.channels.telegram.event import UpdateEvent, UpdateKind, read
from agentsup.model.agent import AgentSpec
from agentsup.model.principal import Principal, PrincipalKind

ME = BotUser(777, "bob_bot")
ANN, EVE, TEAM, OTHERS = 11, 12, -100, -200
SPEC = AgentSpec(name="bob", allowed_user_ids=(ANN,), allowed_group_ids=(TEAM,))


def people(spec: AgentSpec, user_id: int) -> Principal | None:
    if user_id in spec.allowed_user_ids:
        return Principal(PrincipalKind.PERSON, f"telegram:{user_id}")
    return None


def user(user_id: int, **facts: Any) -> dict[str, Any]:
    return {"id": user_id, "is_bot": False, "first_name": f"P{user_id}", **facts}


def chat(chat_id: int) -> dict[str, Any]:
    return {"id": chat_id, "type": "private" if chat_id > 0 else "supergroup", "title": "T"}


def message(chat_id: int, sender: int | None, text: str = "hi", **more: Any) -> dict[str, Any]:
    found = {"message_id": 5, "date": 1_700_000_000, "chat": chat(chat_id), "text": text, **more}
    if sender is not None:
        found["from"] = user(sender)
    return found


def verdict_of(update: dict[str, Any], spec: AgentSpec = SPEC) -> AccessReason:
    return may(read({"update_id": 1, **update}, ME), spec, people).reason


# -- the rule as a table ---------------------------------------------------------------------------

MENTION = [{"type": "mention", "offset": 0, "length": 8}]
COMMAND = [{"type": "bot_command", "offset": 0, "length": 13}]
REPLY = {"message_id": 3, "from": {"id": 777, "is_bot": True, "first_name": "Bob"}}


def pressed(who: int, where: int) -> dict[str, Any]:
    return {"callback_query": {"id": "1", "from": user(who), "message": message(where, 777)}}


def reacted(*emojis: str, **by: Any) -> dict[str, Any]:
    new = [{"type": "emoji", "emoji": each} for each in emojis]
    body = {"chat": chat(TEAM), "message_id": 5, "date": 1, "new_reaction": new, **by}
    return {"message_reaction": body}


@pytest.mark.parametrize(
    "update, reason",
    [
        ({"message": message(ANN, ANN)}, AccessReason.ALLOWED),
        ({"edited_message": message(ANN, ANN, edit_date=1)}, AccessReason.ALLOWED),
        ({"message": message(EVE, EVE)}, AccessReason.STRANGER),
        ({"edited_message": message(EVE, EVE, edit_date=1)}, AccessReason.STRANGER),
        ({"message": message(TEAM, ANN)}, AccessReason.NOT_ADDRESSED),
        ({"message": message(TEAM, ANN, "@bob_bot x", entities=MENTION)}, AccessReason.ALLOWED),
        ({"message": message(TEAM, ANN, "@BOB_BOT x", entities=MENTION)}, AccessReason.ALLOWED),
        ({"message": message(TEAM, ANN, "@bob_bot x")}, AccessReason.NOT_ADDRESSED),
        ({"message": message(TEAM, ANN, "yes", reply_to_message=REPLY)}, AccessReason.ALLOWED),
        ({"message": message(TEAM, ANN, "/ping@bob_bot", entities=COMMAND)}, AccessReason.ALLOWED),
        (
            {"message": message(TEAM, ANN, "/ping@bob_bo2", entities=COMMAND)},
            AccessReason.NOT_ADDRESSED,
        ),
        (
            {
                "message": message(
                    TEAM, ANN, "/ping@bob_bo2", entities=COMMAND, reply_to_message=REPLY
                )
            },
            AccessReason.NOT_ADDRESSED,
        ),
        ({"message": message(TEAM, EVE, "@bob_bot x", entities=MENTION)}, AccessReason.STRANGER),
        ({"message": message(OTHERS, ANN, "@bob_bot x", entities=MENTION)}, AccessReason.GROUP),
        ({"message": message(TEAM, None, "@bob_bot x", entities=MENTION)}, AccessReason.NO_PERSON),
        (
            {"message": message(TEAM, ANN, entities=MENTION, sender_chat=chat(TEAM))},
            AccessReason.NO_PERSON,
        ),
        ({"channel_post": message(TEAM, None)}, AccessReason.NOT_FOR_US),
        ({"channel_post": message(TEAM, ANN)}, AccessReason.NOT_FOR_US),
        ({"inline_query": {"id": "1", "from": user(ANN)}}, AccessReason.NOT_FOR_US),
        (pressed(ANN, TEAM), AccessReason.ALLOWED),
        (pressed(EVE, TEAM), AccessReason.STRANGER),
        (pressed(ANN, OTHERS), AccessReason.GROUP),
        ({"callback_query": {"id": "1", "from": user(ANN)}}, AccessReason.NOT_FOR_US),
        (reacted("👍", user=user(EVE)), AccessReason.STRANGER),
        (reacted(actor_chat=chat(TEAM)), AccessReason.NO_PERSON),
    ],
)
def test_who_may_what(update: dict[str, Any], reason: AccessReason) -> None:
    assert verdict_of(update) is reason


def test_a_free_group_hears_everything_but_what_names_another_bot() -> None:
    spec = AgentSpec(
        name="bob", allowed_user_ids=(ANN,), allowed_group_ids=(TEAM,), group_mention_only=False
    )
    assert verdict_of({"message": message(TEAM, ANN)}, spec) is AccessReason.ALLOWED
    other = message(TEAM, ANN, "/ping@bob_bo2", entities=COMMAND)
    assert verdict_of({"message": other}, spec) is AccessReason.NOT_ADDRESSED
    assert verdict_of({"message": message(TEAM, EVE)}, spec) is AccessReason.STRANGER


def test_a_bot_is_nobody() -> None:
    update = message(ANN, None)
    update["from"] = user(ANN) | {"is_bot": True}
    assert verdict_of({"message": update}) is AccessReason.NO_PERSON


def test_how_to_let_somebody_in_is_told_with_the_ids() -> None:
    event = read({"update_id": 1, "message": message(EVE, EVE)}, ME)
    assert str(EVE) in remedy(event, may(event, SPEC, people), SPEC)
    event = read({"update_id": 1, "message": message(OTHERS, ANN)}, ME)
    assert str(OTHERS) in remedy(event, may(event, SPEC, people), SPEC)
    event = read({"update_id": 1, "message": message(TEAM, ANN)}, ME)
    assert remedy(event, may(event, SPEC, people), SPEC) == ""


@pytest.mark.parametrize("account", [1087968824, 136817688])
def test_who_writes_in_the_name_of_a_chat_is_told_to_the_operator(account: int) -> None:
    body = message(TEAM, ANN) | {"from": user(account) | {"is_bot": True}}
    event = read({"update_id": 1, "message": body | {"sender_chat": body["chat"]}}, ME)
    verdict = may(event, SPEC, people)
    assert verdict.reason is AccessReason.NO_PERSON
    assert "Remain anonymous" in remedy(event, verdict, SPEC)
    other = replace(event, chat_id=OTHERS)
    assert remedy(other, may(other, SPEC, people), SPEC) == ""
    post = replace(event, user_id=777000)
    assert remedy(post, may(post, SPEC, people), SPEC) == ""


def test_people_without_a_name_of_ours_have_the_one_they_show() -> None:
    event = read({"update_id": 1, "message": message(ANN, ANN)}, ME)
    person = Principal(PrincipalKind.PERSON, "telegram:11", "telegram:11")
    assert named(person, event).label == "P11"
    assert named(person, event).subject == "telegram:11"
    known = Principal(PrincipalKind.PERSON, "ann", "ann of ours")
    assert named(known, event) is known
    german = replace(event, language="de")
    assert named(known, german) == replace(known, language="de")


# -- properties ------------------------------------------------------------------------------------

ids = st.sampled_from([ANN, EVE, TEAM, OTHERS, 777, 1087968824, 0, 13])
events = st.builds(
    UpdateEvent,
    update_id=st.just(1),
    kind=st.sampled_from(UpdateKind),
    chat_id=st.none() | ids,
    chat_type=st.sampled_from(["private", "group", "supergroup", "channel", "", "new"]),
    topic_id=st.none() | st.just(4),
    message_id=st.none() | st.just(5),
    user_id=st.none() | ids,
    is_bot=st.booleans(),
    for_chat=st.booleans(),
    text=st.text(max_size=5),
    addressed=st.booleans(),
    misaddressed=st.booleans(),
)


@given(events, st.booleans())
def test_nobody_but_known_people_in_allowed_places_is_let_through(
    event: UpdateEvent, mention_only: bool
) -> None:
    spec = AgentSpec(
        name="bob",
        allowed_user_ids=(ANN,),
        allowed_group_ids=(TEAM,),
        group_mention_only=mention_only,
    )
    verdict = may(event, spec, people)
    if not verdict.allowed:
        assert verdict.principal is None
        assert verdict.reason is not AccessReason.ALLOWED
        return
    assert event.user_id == ANN
    assert not event.is_bot
    assert not event.for_chat
    if event.chat_id == ANN:
        assert event.chat_type == "private"
    else:
        assert event.chat_id == TEAM
        assert event.chat_type in {"group", "supergroup"}
        if event.kind in {UpdateKind.MESSAGE, UpdateKind.EDITED}:
            assert not event.misaddressed
            assert event.addressed or not mention_only


PEOPLE = ["id", "type", "chat", "from", "user", "is_bot", "forward_origin"]
TEXTS = ["message", "message_id", "date", "text", "data", "entities", "offset", "length"]
MORE = ["reply_to_message", "photo", "file_id", "new_reaction", "emoji", "location"]
KEYS = [*PEOPLE, *TEXTS, *MORE, "poll", "options"]
SPOKEN = ["message", "edited_message", "channel_post", "poll"]
KINDS = [*SPOKEN, "callback_query", "message_reaction", "my_chat_member"]
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.floats(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(KEYS),
            inner,
            max_size=6,
        )
    ),
    max_leaves=12,
)


@given(
    st.sampled_from(KINDS),
    json_values,
)
def test_whatever_an_update_holds_it_is_read_or_called_malformed(kind: str, body: Any) -> None:
    """And a stranger's update never becomes one that is let through."""
    try:
        event = read({"update_id": 1, kind: body}, ME)
    except Malformed:
        return
    assert not may(event, SPEC, lambda spec, user_id: None).allowed
