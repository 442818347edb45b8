"""getUpdates: the long poll, offsets, conflicts, what is remembered and for how long."""

from __future__ import annotations

import asyncio

import pytest

from tests.contract.fake_telegram.conftest import FakeTelegramFixture

CONFLICT = (
    "Conflict: terminated by other getUpdates request; make sure that only one bot instance is "
    "running"
)


async def test_a_poll_waits_and_wakes_at_once(place: FakeTelegramFixture) -> None:
    async def later() -> None:
        await place.people.act("clear_violations")  # a round trip, so that the poll is waiting
        await place.people.say(place.chat, "hello")

    polled, _ = await asyncio.gather(place.updates(timeout=30), later())
    assert [update["message"]["text"] for update in polled] == ["hello"]


async def test_updates_come_again_until_confirmed(place: FakeTelegramFixture) -> None:
    for text in ("one", "two", "three"):
        await place.people.say(place.chat, text)
    first = await place.updates(limit=2)
    assert [u["message"]["text"] for u in first] == ["one", "two"]
    assert first[1]["update_id"] == first[0]["update_id"] + 1
    assert await place.updates(limit=2) == first, "not confirmed, so delivered again"
    rest = await place.updates(offset=first[-1]["update_id"] + 1)
    assert [u["message"]["text"] for u in rest] == ["three"]
    lower = await place.updates(offset=first[0]["update_id"])
    assert lower == rest, "what was confirmed is gone, whatever is asked for later"


async def test_a_negative_offset_keeps_the_last(place: FakeTelegramFixture) -> None:
    for text in ("one", "two", "three"):
        await place.people.say(place.chat, text)
    assert [u["message"]["text"] for u in await place.updates(offset=-2)] == ["two", "three"]
    assert [u["message"]["text"] for u in await place.updates()] == ["two", "three"]


async def test_of_two_pollers_the_older_is_refused(place: FakeTelegramFixture) -> None:
    older = asyncio.gather(place.call("getUpdates", timeout=30))
    while "getUpdates" not in (await place.people.report())["calls"]:
        await place.people.get("clock")

    async def say_when_ousted() -> None:
        answer = (await older)[0]
        assert (answer["error_code"], answer["description"]) == (409, CONFLICT)
        await place.people.say(place.chat, "for the newer")

    newer, _ = await asyncio.gather(place.updates(timeout=30), say_when_ousted())
    assert newer[0]["message"]["text"] == "for the newer"


async def test_unknown_and_revoked_tokens(place: FakeTelegramFixture) -> None:
    answer = await place.people.call("123:nonsense", "getMe")
    assert (answer["status"], answer["description"]) == (401, "Unauthorized")
    await place.people.revoke(place.bot.bot_id)
    assert (await place.refusal("getUpdates", timeout=30))[0] == 401
    await place.people.revoke(place.bot.bot_id, revoked=False)
    assert await place.updates() == []


async def test_allowed_updates_are_remembered(place: FakeTelegramFixture) -> None:
    message_id = await place.people.say(place.chat, "x")
    await place.people.react(place.chat, message_id, "👍")
    assert len(await place.updates(offset=-1)) == 1, "reactions only on demand"
    kinds = ["message_reaction", "nonsense"]
    await place.updates(offset=1 << 30, allowed_updates=kinds)
    assert (await place.call("getWebhookInfo"))["result"]["allowed_updates"] == [kinds[0]]
    before = await place.updates()
    await place.people.say(place.chat, "not wanted now")
    await place.people.react(place.chat, message_id, "🎉")
    (update,) = (await place.updates())[len(before) :]
    assert update["message_reaction"]["old_reaction"] == [{"type": "emoji", "emoji": "👍"}]
    assert update["message_reaction"]["new_reaction"] == [{"type": "emoji", "emoji": "🎉"}]
    assert update["message_reaction"]["user"]["id"] == place.ann
    await place.updates(allowed_updates=[])
    await place.people.say(place.chat, "wanted again")
    assert (await place.updates())[-1]["message"]["text"] == "wanted again"


async def test_updates_are_kept_for_a_day(place: FakeTelegramFixture) -> None:
    await place.people.say(place.chat, "old")
    await place.people.advance(23 * 3600)
    await place.people.say(place.chat, "young")
    assert len(await place.updates()) == 2
    await place.people.advance(2 * 3600)
    assert [u["message"]["text"] for u in await place.updates()] == ["young"]


async def test_numbers_restart_after_a_week_of_silence(place: FakeTelegramFixture) -> None:
    await place.people.say(place.chat, "one")
    (first,) = await place.updates()
    assert await place.updates(offset=first["update_id"] + 1) == []
    await place.people.advance(8 * 24 * 3600)
    await place.people.say(place.chat, "two")
    (second,) = await place.updates()
    assert second["update_id"] != first["update_id"] + 1


@pytest.mark.parametrize("start, arrives", [(1000, True), (-5, False)])
async def test_an_offset_of_the_old_numbering(
    place: FakeTelegramFixture, start: int, arrives: bool
) -> None:
    """Far ahead of the new numbers it is ignored; a little ahead it confirms unseen updates."""
    await place.people.say(place.chat, "one")
    (first,) = await place.updates()
    offset = first["update_id"] + 1
    await place.updates(offset=offset)
    value = start if start > 0 else offset + start
    await place.people.next_update_id(place.bot.bot_id, value)
    await place.people.say(place.chat, "two")
    found = await place.updates(offset=offset)
    assert [u["update_id"] for u in found] == ([value] if arrives else [])
