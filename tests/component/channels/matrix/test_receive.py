"""What becomes of events that a Matrix bot is given: to whom they belong, once, and within bounds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agentsup.channels.core.errors import (
    NotAllowed,
    NotSent,
    OutcomeUnknown,
    RateLimited,
    RequestRefused,
    TokenRefused,
)
from agentsup.channels.matrix.event import DOUBTFUL
from agentsup.model.agent import AgentSpec, MatrixIdentity
from agentsup.model.errors import StoreUnavailable
from agentsup.store import Tx
from tests.component.channels.matrix.receive_fixture import (
    ANN,
    BEN,
    EVE,
    ME,
    ROOM,
    MatrixReceiveFixture,
    receiving,
)

pytestmark = pytest.mark.virtual

THREAD = {"rel_type": "m.thread", "event_id": "$root"}
IN_THREAD = f"{ROOM}/$root"
OTHER, NEW = "!o:here", "!new:here"
DAY_MS = 24 * 3_600_000


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[MatrixReceiveFixture]:
    async with receiving(tmp_path) as made:
        yield made


# -- edits -----------------------------------------------------------------------------------------


async def test_an_edit_in_a_thread_stays_in_its_session(rig: MatrixReceiveFixture) -> None:
    first = await rig.say("teh end", THREAD)
    await rig.mail.claim("agt_bob")
    await rig.edit(first, "the end")
    assert await rig.heard() == [(IN_THREAD, "teh end"), (IN_THREAD, "(edited) the end")]


async def test_an_edit_of_what_was_for_the_bot_is_for_the_bot(rig: MatrixReceiveFixture) -> None:
    rig.group()
    first = await rig.say("Bob: teh end", THREAD)
    await rig.edit(first, "the end")
    assert await rig.heard() == [(IN_THREAD, "the end")]
    first = await rig.say("Bob: outside")
    await rig.edit(first, "outside of it")
    assert (await rig.heard())[1:] == [(ROOM, "outside of it")]
    other = await rig.say("among us", THREAD | {"event_id": "$elsewhere"})
    row = await rig.edit(other, "among all of us")
    assert await rig.state(row) == ("skipped", "not addressed")
    assert len(await rig.heard()) == 2


async def test_an_edit_that_first_names_the_bot_says_it(rig: MatrixReceiveFixture) -> None:
    rig.group()
    first = await rig.say("what is the time", THREAD)
    assert await rig.heard() == []
    await rig.edit(first, "Bob: what is the time")
    assert await rig.heard() == [(IN_THREAD, "what is the time")]


async def test_what_the_store_has_forgotten_the_homeserver_is_asked_for(
    rig: MatrixReceiveFixture,
) -> None:
    rig.group()
    first = await rig.say("Bob: long ago", THREAD)
    raw = rig.raw({"msgtype": "m.text", "body": "Bob: long ago", "m.relates_to": THREAD})
    rig.server.events[first.external_id] = raw | {"event_id": first.external_id}
    await rig.mail.db.write(lambda tx: tx.execute("DELETE FROM received"))
    rig.server.trouble["event", ROOM] = [OutcomeUnknown("502"), RateLimited(30.0)]
    await rig.edit(first, "longer ago", wait_s=60)
    assert (await rig.heard())[1:] == [(IN_THREAD, "longer ago")]
    rig.server.events.clear()
    row = await rig.edit(first, "still longer ago")
    assert await rig.state(row) == ("skipped", "not addressed")


async def test_an_edit_of_anothers_words_inherits_nothing(rig: MatrixReceiveFixture) -> None:
    rig.group()
    first = await rig.say("Bob: by Ann", THREAD)
    row = await rig.edit(first, "by Ben", sender=BEN)
    assert await rig.state(row) == ("skipped", "not addressed")
    assert await rig.heard() == [(IN_THREAD, "by Ann")]


async def test_an_edit_of_a_reply_keeps_what_it_replies_to(rig: MatrixReceiveFixture) -> None:
    rig.server.events["$said"] = rig.raw({"body": "Eve's words"}, sender=EVE)
    first = await rig.say("teh reply", {"m.in_reply_to": {"event_id": "$said"}})
    await rig.edit(first, "the reply")
    ((_, text),) = await rig.heard()
    assert "Eve's words" in text
    assert text.endswith("the reply")


async def test_an_edit_answers_no_question_but_one_that_it_replies_to(
    rig: MatrixReceiveFixture,
) -> None:
    """What is open now may have been asked after the text that is corrected."""
    first = await rig.say("yse")
    await rig.mail.claim("agt_bob")
    await rig.edit(first, "yes")
    assert rig.buttons.texts == [("yse", None, "")]
    first = await rig.say("yse", THREAD | {"m.in_reply_to": {"event_id": "$q"}})
    await rig.mail.claim("agt_bob")
    await rig.edit(first, "yes")
    assert [text[:2] for text in rig.buttons.texts[1:]] == [("yse", "$q"), ("yes", "$q")]


async def test_a_stop_finds_edits_where_their_messages_are(rig: MatrixReceiveFixture) -> None:
    first = await rig.say("teh end", THREAD)
    await rig.mail.claim("agt_bob")
    edit = rig.edit(first, "the end", wait_s=0)

    async def stopped(conversation: dict[str, Any] | None) -> None:
        await rig.say("/stop", conversation, wait_s=1)

    await rig.close()
    row = await edit
    rig.open()
    await stopped(None)
    assert (await rig.state(row))[0] == "received", "the stop was for the room"
    await stopped(THREAD)
    assert await rig.state(row) == ("skipped", "stopped_here")


async def test_a_stop_counts_what_would_have_been_answered(rig: MatrixReceiveFixture) -> None:
    rig.server.rooms[ROOM] = {ME: {}, ANN: {}}
    rig.group()
    await rig.close()
    for text, who in (("Bob: do it", EVE), ("Bob: do it", BEN), ("among us", ANN), ("so?", EVE)):
        await rig.say(text, sender=who, wait_s=0)
    rig.open()
    await rig.say("/stop")
    ((_, text),) = await rig.notices()
    assert text.splitlines()[1:] == ["A message that was not read yet was dropped too."]
    await rig.reopen()
    await rig.incoming.feed.take_leftovers()
    await asyncio.sleep(1)
    assert await rig.heard() == []


# -- places and bounds -----------------------------------------------------------------------------


async def test_a_room_that_nobody_can_tell_of_holds_no_place(rig: MatrixReceiveFixture) -> None:
    await rig.reopen(at_once=1)
    rig.server.rooms[OTHER] = {ME: {}, ANN: {}}
    rig.server.stays = True
    rig.server.trouble["members", ROOM] = [OutcomeUnknown("500")]
    stuck = await rig.say("hello")
    await rig.react("$x", "👍")
    await rig.say("/stop")
    await rig.say("elsewhere", room=OTHER)
    await rig.react("$y", "👍", room=OTHER)
    await rig.say("/stop", room=OTHER)
    assert await rig.heard() == [(OTHER, "elsewhere")]
    assert rig.buttons.pressed == [(f"matrix:{ANN}", "$y", "👍")]
    assert rig.ran == [OTHER]
    assert (await rig.state(stuck))[0] == "received"


async def test_after_an_hour_what_came_from_it_is_set_aside_and_the_operator_hears_once(
    rig: MatrixReceiveFixture,
) -> None:
    rig.server.stays = True
    rig.server.trouble["members", ROOM] = [OutcomeUnknown("500")]
    first, second = await rig.say("one"), await rig.say("two")
    await asyncio.sleep(8_000)
    for row in (first, second):
        state, why = await rig.state(row)
        assert (state, "500" in why) == ("quarantined", True)
    assert len(rig.told) == 1
    assert ROOM in rig.told[0]
    assert rig.set_aside == [1, 2]
    rig.server.trouble.clear()
    await rig.say("three")
    assert await rig.heard() == [(ROOM, "three")]


@pytest.mark.parametrize(
    "trouble",
    [
        RateLimited(20.0),
        OutcomeUnknown("502"),
        NotSent("no way"),
        RequestRefused(400, "x", "M_UNKNOWN"),
        NotAllowed(403, "x", "M_CONSENT_NOT_GIVEN"),
        TokenRefused("x"),
    ],
)
async def test_no_trouble_of_the_homeserver_skips_a_text(
    rig: MatrixReceiveFixture, trouble: Exception
) -> None:
    rig.server.trouble["members", ROOM] = [trouble] * 3  # type: ignore[list-item]  # all are errors of Matrix
    await rig.say("hello", wait_s=100)
    assert await rig.heard() == [(ROOM, "hello")]


async def test_a_reply_that_may_be_to_the_bot_is_not_skipped_for_a_moments_trouble(
    rig: MatrixReceiveFixture,
) -> None:
    rig.group()
    rig.server.events["$ours"] = rig.raw({"body": "Which?"}, sender=ME)
    rig.server.trouble["event", ROOM] = [OutcomeUnknown("502")] * 8
    await rig.say("this one", {"m.in_reply_to": {"event_id": "$ours"}}, wait_s=600)
    assert await rig.heard() == [(ROOM, "[about your own words: Which?]\nthis one")]
    assert rig.buttons.texts == [("this one", "$ours", "Which?")]


async def test_a_file_that_is_replied_to_is_named_and_fetched(rig: MatrixReceiveFixture) -> None:
    content = {"msgtype": "m.file", "url": "mxc://here/1", "body": "a.pdf", "info": {"size": 4}}
    rig.server.events["$file"] = rig.raw(content, sender=EVE)
    rig.server.answers_downloads.set()
    await rig.say("summarise this", {"m.in_reply_to": {"event_id": "$file"}})
    ((_, text),) = await rig.heard()
    assert "(with a.pdf)]\nsummarise this" in text
    assert rig.server.count("download", "mxc://here/1") == 1


async def test_a_quotation_that_can_not_be_had_costs_a_private_talk_little(
    rig: MatrixReceiveFixture,
) -> None:
    rig.server.stays = True
    rig.server.trouble["event", ROOM] = [RateLimited(900.0)]
    await rig.say("this one", {"m.in_reply_to": {"event_id": "$x"}}, wait_s=15)
    assert await rig.heard() == [(ROOM, "this one")]


async def test_a_stop_asks_the_homeserver_nothing_that_it_does_not_need(
    rig: MatrixReceiveFixture,
) -> None:
    """It is obeyed while nobody can say what it replies to, or whose thread it is in."""
    rig.server.stays = True
    rig.server.trouble["event", ROOM] = [OutcomeUnknown("502")]
    await rig.say("/stop", {"m.in_reply_to": {"event_id": "$x"}})
    rig.group()
    rig.rooms.forget(ROOM)
    await rig.say("/stop", {"m.in_reply_to": {"event_id": "$x"}})
    await rig.say("/stop", THREAD)
    assert rig.ran == [ROOM, ROOM, IN_THREAD]
    assert rig.server.count("event") == 0


# -- invitations -----------------------------------------------------------------------------------


def member(what: str, sender: str, **more: Any) -> dict[str, Any]:
    content = {"membership": what}
    common = {"type": "m.room.member", "state_key": ME, "content": content}
    return common | {"sender": sender, "event_id": "$m", **more}


async def test_an_invitation_is_accepted_once_it_can_be(rig: MatrixReceiveFixture) -> None:
    rig.server.trouble["join", NEW] = [OutcomeUnknown("502"), NotSent("no way"), RateLimited(5.0)]
    rig.server.entries = [member("join", ME), member("invite", ANN)]
    row = await rig.invited(wait_s=60)
    assert await rig.state(row) == ("done", "")
    assert rig.server.count("join", NEW) == 4
    assert not rig.server.count("leave", NEW)
    assert rig.told == []


async def test_an_invitation_that_fails_is_given_up_with_a_word_and_holds_no_place(
    rig: MatrixReceiveFixture,
) -> None:
    await rig.reopen(at_once=1)
    rig.server.stays = True
    rig.server.trouble["join", NEW] = [OutcomeUnknown("502")]
    row = await rig.invited()
    await rig.say("meanwhile")
    assert await rig.heard() == [(ROOM, "meanwhile")]
    await asyncio.sleep(3_600)
    assert (await rig.state(row))[0] == "skipped"
    (told,) = rig.told
    assert NEW in told
    assert "502" in told
    assert rig.server.count("join", NEW) < 20


@pytest.mark.parametrize(
    "entries, stays",
    [
        ([member("join", ME), member("invite", ANN)], True),
        ([member("join", ME), member("invite", EVE)], False),
        ([member("join", ME), member("invite", EVE), member("invite", ANN)], False),
        (
            [
                member(
                    "join",
                    ME,
                    unsigned={"prev_content": {"membership": "invite"}, "prev_sender": EVE},
                )
            ],
            False,
        ),
        ([member("join", ME)], True),
        ([member("join", ME), member("leave", ANN), member("invite", EVE)], True),
    ],
)
async def test_who_invited_is_looked_at_from_inside(
    rig: MatrixReceiveFixture, entries: list[dict[str, Any]], stays: bool
) -> None:
    rig.server.entries = list(entries)
    row = await rig.invited()
    assert rig.server.count("join", NEW) == 1
    assert rig.server.count("leave", NEW) == (0 if stays else 1)
    assert (await rig.state(row))[0] == ("done" if stays else "skipped")


async def test_into_an_allowed_room_anybody_may_invite(rig: MatrixReceiveFixture) -> None:
    rig.group(NEW)
    rig.server.entries = [member("join", ME), member("invite", EVE)]
    row = await rig.invited(by=EVE)
    assert (await rig.state(row))[0] == "done"
    assert not rig.server.count("leave", NEW)


# -- what must not act any more --------------------------------------------------------------------


async def test_an_old_reaction_presses_nothing(rig: MatrixReceiveFixture) -> None:
    now = rig.mail.clock.now_ms()
    row = await rig.react("$q", "1️⃣", origin_server_ts=now - DAY_MS - 10_000)
    assert await rig.state(row) == ("skipped", "too_late")
    await rig.react("$q", "2️⃣", origin_server_ts=now - DAY_MS + 10_000)
    assert rig.buttons.pressed == [(f"matrix:{ANN}", "$q", "2️⃣")]


async def test_commands_know_whether_others_read_along(rig: MatrixReceiveFixture) -> None:
    await rig.say("/stop")
    await rig.react("$x", "👍")
    rig.group()
    rig.rooms.forget(ROOM)
    await rig.say("/stop")
    await rig.react("$x", "👍")
    assert (rig.shared, rig.buttons.private) == ([False, True], [True, False])


async def test_nothing_is_run_because_of_what_may_have_been_handled_before(
    rig: MatrixReceiveFixture,
) -> None:
    doubtful: dict[str, Any] = {DOUBTFUL: True}
    await rig.say("/ping", **doubtful)
    await rig.say("/stop", **doubtful)
    await rig.react("$q", "1️⃣", **doubtful)
    await rig.say("2", **doubtful)
    assert (rig.ran, rig.buttons.pressed, rig.buttons.texts) == ([], [], [])
    assert await rig.heard() == [(ROOM, "2")]
    said = [text for _, text in await rig.notices()]
    assert ["/ping" in said[0], "/stop" in said[1]] == [True, True]
    assert all("was not done" in text for text in said)


async def test_a_strangers_presses_are_told_once_to_be_none_of_his(
    rig: MatrixReceiveFixture,
) -> None:
    rig.group()
    for _ in range(2):
        await rig.react("$q", "1️⃣", sender=EVE)
    row = await rig.react("$q", "1️⃣", sender=EVE)
    assert rig.buttons.pressed == [("", "$q", "1️⃣")]
    assert await rig.state(row) == ("skipped", "stranger")
    rig.spec = AgentSpec("bob", matrix=MatrixIdentity(user_id=ME))
    await rig.react("$q", "1️⃣", sender=BEN)
    assert len(rig.buttons.pressed) == 1, "the room is not one of the agent's any more"


# -- poison ----------------------------------------------------------------------------------------


async def test_whoever_can_not_be_looked_up_costs_the_others_nothing(
    rig: MatrixReceiveFixture,
) -> None:
    rig.group(mention_only=False)
    rig.ill.add(EVE)
    row = await rig.say("let me in", sender=EVE, wait_s=0)
    await rig.say("behind", wait_s=0)
    await rig.say("and on")
    assert await rig.heard() == [(ROOM, "behind"), (ROOM, "and on")]
    assert (await rig.state(row))[0] == "quarantined"
    assert rig.set_aside == [1]


# -- taken back ------------------------------------------------------------------------------------


async def test_taking_back_is_all_or_nothing(
    rig: MatrixReceiveFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await rig.say("forget this")
    cancel_tx = rig.mail.mailbox.control.cancel_tx
    failed = 0

    def failing(tx: Tx, *args: Any) -> Any:
        nonlocal failed
        cancel_tx(tx, *args)
        if failed < 2:
            failed += 1
            raise StoreUnavailable("the disk is full")

    monkeypatch.setattr(rig.mail.mailbox.control, "cancel_tx", failing)
    row = await rig.come({"redacts": first.external_id}, "m.room.redaction", wait_s=0.5)
    assert (await rig.state(row))[0] == "received"
    assert await states(rig) == ["queued"]
    await asyncio.sleep(10)
    assert (await rig.state(row))[0] == "done"
    assert await states(rig) == ["cancelled"]


async def test_what_has_begun_is_not_taken_back(rig: MatrixReceiveFixture) -> None:
    first = await rig.say("begun")
    await rig.mail.claim("agt_bob")
    row = await rig.come({"redacts": first.external_id}, "m.room.redaction")
    assert (await rig.state(row))[0] == "done"
    assert await states(rig) == ["leased"]


async def states(rig: MatrixReceiveFixture) -> list[str]:
    return [str(row[0]) for row in await rig.mail.sql("SELECT state FROM messages ORDER BY seq")]
