"""One rule for every kind of event: who is listened to over Matrix."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentsup.channels.core.receiving.gate import AccessReason, with_name
from agentsup.channels.core.receiving.texts import Quoted
from agentsup.channels.matrix.access import Room, may, may_enter, remedy
from agentsup.channels.matrix.event import RoomEvent, RoomEventKind
from agentsup.model.agent import AgentSpec, MatrixIdentity
from agentsup.model.principal import PersonRole, Principal, PrincipalKind

ME, ANN, EVE = "@bot:here", "@ann:here", "@eve:here"
ROOM = "!r:here"
SPEC = AgentSpec("bob", matrix=MatrixIdentity(user_id=ME, allowed_users=(ANN,)))
ALONE = Room(ROOM, {ME: "Bob", ANN: "Ann"})
CROWD = Room(ROOM, {ME: "Bob", ANN: "Ann", EVE: "Eve"})
ALL = (
    RoomEventKind.MESSAGE,
    RoomEventKind.EDITED,
    RoomEventKind.REACTION,
    RoomEventKind.REDACTION,
    RoomEventKind.ENCRYPTED,
)


def people(spec: AgentSpec, user_id: str) -> Principal | None:
    if user_id not in spec.matrix.allowed_users:
        return None
    subject = f"matrix:{user_id}"
    return Principal(PrincipalKind.PERSON, subject, subject, PersonRole.USER)


def event(
    kind: RoomEventKind = RoomEventKind.MESSAGE, sender: str = ANN, **more: object
) -> RoomEvent:
    return replace(RoomEvent(kind, ROOM, "$1", sender), **more)  # type: ignore[arg-type]


def reason(asked: RoomEvent, room: Room, spec: AgentSpec = SPEC) -> AccessReason:
    verdict = may(asked, spec, people, room, ME)
    assert verdict.allowed == (verdict.reason is AccessReason.ALLOWED)
    return verdict.reason


def allowing(**more: object) -> AgentSpec:
    return replace(
        SPEC,
        matrix=replace(SPEC.matrix, allowed_rooms=(ROOM,)),
        **more,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("kind", ALL)
def test_every_kind_is_judged_alike(kind: RoomEventKind) -> None:
    assert reason(event(kind), ALONE) is AccessReason.ALLOWED
    assert reason(event(kind, EVE), Room(ROOM, {ME: "", EVE: ""})) is AccessReason.STRANGER
    assert reason(event(kind), CROWD) is AccessReason.ROOM
    assert reason(event(kind, EVE), CROWD, allowing()) is AccessReason.STRANGER
    assert reason(event(kind, ME), ALONE) is AccessReason.NO_PERSON


@pytest.mark.parametrize("kind", [RoomEventKind.OTHER, RoomEventKind.INVITE, RoomEventKind.GAP])
def test_what_is_not_of_people_is_never_allowed(kind: RoomEventKind) -> None:
    assert reason(event(kind), ALONE) is AccessReason.NOT_FOR_US


def test_programs_are_never_answered() -> None:
    assert reason(event(is_notice=True), ALONE) is AccessReason.NO_PERSON


def test_nobody_is_allowed_by_default() -> None:
    assert reason(event(), ALONE, AgentSpec("bob")) is AccessReason.STRANGER
    assert not may_enter(event(RoomEventKind.INVITE), AgentSpec("bob"), people)


def test_a_guest_makes_a_private_room_one_that_must_be_allowed() -> None:
    assert reason(event(), ALONE) is AccessReason.ALLOWED
    assert reason(event(), CROWD) is AccessReason.ROOM
    assert reason(event(addressed=True), CROWD, allowing()) is AccessReason.ALLOWED


def test_in_a_group_only_what_is_meant_for_the_bot() -> None:
    spec = allowing()
    assert reason(event(), CROWD, spec) is AccessReason.NOT_ADDRESSED
    assert reason(event(RoomEventKind.EDITED), CROWD, spec) is AccessReason.NOT_ADDRESSED
    assert reason(event(addressed=True), CROWD, spec) is AccessReason.ALLOWED
    ours, theirs = Quoted("$0", is_ours=True), Quoted("$0", is_ours=False)
    assert reason(event(quoted=ours), CROWD, spec) is AccessReason.ALLOWED
    assert reason(event(quoted=theirs), CROWD, spec) is AccessReason.NOT_ADDRESSED
    assert reason(event(RoomEventKind.REACTION), CROWD, spec) is AccessReason.ALLOWED
    assert reason(event(), CROWD, allowing(group_mention_only=False)) is AccessReason.ALLOWED


@pytest.mark.parametrize("words", ["!stop", "/stop", " /STOP_ALL ", "!interrupt", "/stop now"])
def test_a_stop_needs_no_name(words: str) -> None:
    assert reason(event(text=words), CROWD, allowing()) is AccessReason.ALLOWED
    assert reason(event(text=words, sender=EVE), CROWD, allowing()) is AccessReason.STRANGER
    assert reason(event(text=words), CROWD) is AccessReason.ROOM
    for other in ("stop", f"x {words}", "/stopper", "/status"):
        assert reason(event(text=other), CROWD, allowing()) is AccessReason.NOT_ADDRESSED


def test_invitations_from_its_people_or_into_its_rooms() -> None:
    assert may_enter(event(RoomEventKind.INVITE), SPEC, people)
    assert not may_enter(event(RoomEventKind.INVITE, EVE), SPEC, people)
    assert may_enter(event(RoomEventKind.INVITE, EVE), allowing(), people)


def test_the_remedy_names_what_to_write_where() -> None:
    assert ROOM in remedy(event(), AccessReason.ROOM, "bob")
    assert "allowed_rooms" in remedy(event(), AccessReason.ROOM, "bob")
    assert EVE in remedy(event(sender=EVE), AccessReason.STRANGER, "bob")
    assert "invite again" in remedy(event(RoomEventKind.INVITE, EVE), AccessReason.STRANGER, "bob")
    assert remedy(event(), AccessReason.NOT_ADDRESSED, "bob") == ""


def test_a_shown_name_is_for_reading_only() -> None:
    known = Principal(PrincipalKind.PERSON, "ann", "ann", PersonRole.OPERATOR)
    assert with_name(known, "the operator") == replace(known, name="the operator")
    assert with_name(replace(known, name="Ann"), "x").name == "Ann"
    assert with_name(known, "a\n" + "b" * 100).name == "a " + "b" * 62
