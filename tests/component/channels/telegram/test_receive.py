"""Receiving over the real client and a strict server; people are played over raw HTTP."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentsup.channels.core import ChannelReport, ChannelState, TokenRefused
from agentsup.channels.core.receiving import messages as core_messages
from agentsup.channels.core.receiving import quarantine
from agentsup.channels.core.receiving import rows as stored
from agentsup.channels.core.receiving.handler import MessageHandler
from agentsup.channels.telegram.live_answer import Streams
from agentsup.model.errors import Conflict, NotFound, StoreUnavailable
from agentsup.store import Database, prune
from tests.component.channels.telegram.fixture import TOKEN, TelegramFixture, rigged
from tests.support.bound import BOUND_S


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[TelegramFixture]:
    async with rigged(tmp_path) as rig:
        yield rig


async def test_poison_is_set_aside_and_shown_and_the_rest_is_answered(rig: TelegramFixture) -> None:
    await rig.people.inject(rig.bot.bot_id, {"message": {"message_id": "one", "chat": 5}})
    await rig.people.inject(rig.bot.bot_id, {"callback_query": {"from": {"id": 1}}})
    await rig.people.inject(rig.bot.bot_id, {"a_kind_of_the_future": {"x": 1}})
    await rig.people.say(rig.chat, "good")
    await rig.start()
    await rig.people.wait_text(rig.chat, "echo: good")
    await rig.until(lambda: rig.reports[-1].quarantined == 2)
    assert await rig.states() == {"quarantined": 2, "skipped": 1, "done": 1}
    await rig.stop()
    await rig.start()
    assert rig.reports[-1].quarantined == 2


def lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine lacks memory, and then a descriptor, when a text is handled."""
    real, short = (
        MessageHandler.handle,
        [OSError(errno.EMFILE, "Too many open files"), MemoryError()],
    )

    async def handle(self: Any, item: Any, event: Any, principal: Any, lane: Any) -> None:
        if short:
            raise RuntimeError("a library's") from short.pop()
        await real(self, item, event, principal, lane)

    monkeypatch.setattr(MessageHandler, "handle", handle)


async def test_a_shortage_of_the_machine_sets_no_update_aside(
    rig: TelegramFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking(monkeypatch)
    await rig.people.say(rig.chat, "good")
    await rig.start()
    await rig.people.wait_text(rig.chat, "echo: good")
    assert rig.agent.texts == ["good"]
    assert await rig.states() == {"done": 1}


async def test_a_shortage_taken_for_a_fault_sets_an_update_aside(
    rig: TelegramFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same without what tells the two apart."""
    lacking(monkeypatch)
    monkeypatch.setattr(core_messages, "is_shortage", lambda error: False)
    await rig.people.say(rig.chat, "good")
    await rig.start()
    await rig.people.wait_text(rig.chat, "could not be handled")
    assert rig.agent.texts == []
    assert rig.reports[-1].quarantined == 1


async def test_a_fault_in_here_costs_one_update_and_says_so(
    rig: TelegramFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = MessageHandler.handle

    async def handle(self: Any, item: Any, event: Any, principal: Any, lane: Any) -> None:
        if event.text == "bad":
            raise ZeroDivisionError("on purpose")
        await real(self, item, event, principal, lane)

    monkeypatch.setattr(MessageHandler, "handle", handle)
    await rig.people.say(rig.chat, "bad")
    await rig.people.say(rig.chat, "good")
    await rig.start()
    await rig.people.wait_text(rig.chat, "echo: good")
    await rig.people.wait_text(rig.chat, "could not be handled")
    assert rig.reports[-1].quarantined == 1


async def test_what_was_set_aside_is_named_tried_again_and_dropped(
    rig: TelegramFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, is_broken = MessageHandler.handle, True

    async def handle(self: Any, item: Any, event: Any, principal: Any, lane: Any) -> None:
        if is_broken:
            raise ZeroDivisionError("on purpose")
        await real(self, item, event, principal, lane)

    monkeypatch.setattr(MessageHandler, "handle", handle)
    await rig.start()
    for text in ("one", "two"):
        await rig.people.say(rig.chat, text)
    await rig.until(lambda: rig.reports[-1].quarantined == 2)
    two, one = await rig.database.read(lambda reader: quarantine.latest(reader, limit=10))
    assert "on purpose" in one.error
    assert '"text":"one"' in one.raw
    await rig.people.wait_text(rig.chat, f"as update {one.update_id}")
    # Still broken: it comes back, and can be tried once more.
    await rig.database.write(lambda tx: quarantine.retry_tx(tx, one.update_id))
    async with asyncio.timeout(BOUND_S):
        while (await rig.states()).get("quarantined") != 2:
            await asyncio.sleep(0.01)
    is_broken = False
    await rig.database.write(lambda tx: quarantine.retry_tx(tx, one.update_id))
    await rig.people.wait_text(rig.chat, "echo: one")
    await rig.until(lambda: rig.reports[-1].quarantined == 1)
    await rig.database.write(lambda tx: quarantine.drop_tx(tx, two.update_id))
    await rig.until(lambda: rig.reports[-1].quarantined == 0)
    with pytest.raises(Conflict):
        await rig.database.write(lambda tx: quarantine.retry_tx(tx, two.update_id))
    with pytest.raises(NotFound):
        await rig.database.read(lambda reader: quarantine.find(reader, "telegram.99999"))
    assert rig.agent.texts == ["one"]


async def quarantined(
    rig: TelegramFixture, monkeypatch: pytest.MonkeyPatch, *texts: str
) -> list[str]:
    """Start the bot and have it fail to handle these texts; the ids of them in quarantine."""

    async def handle(*_: Any) -> None:
        raise ZeroDivisionError("on purpose")

    with monkeypatch.context() as patch:
        patch.setattr(MessageHandler, "handle", handle)
        await rig.start()
        for text in texts:
            await rig.people.say(rig.chat, text)
        await rig.until(lambda: rig.reports[-1].quarantined == len(texts))
    found = await rig.database.read(lambda reader: quarantine.latest(reader, limit=10))
    return [each.update_id for each in reversed(found)]


async def test_what_is_to_be_tried_again_as_another_is_taken_up_is_taken_up_too(
    rig: TelegramFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, *others = await quarantined(rig, monkeypatch, "one", "two")
    write = Database.write

    async def committed(self: Database, fn: Any, *args: Any, name: str = "", **how: Any) -> Any:
        done = await write(self, fn, *args, name=name, **how)
        if name == "telegram.again" and others:
            two = others.pop()
            await write(self, lambda tx: quarantine.retry_tx(tx, two))
        return done

    monkeypatch.setattr(Database, "write", committed)
    await rig.database.write(lambda tx: quarantine.retry_tx(tx, one))
    await rig.people.wait_text(rig.chat, "echo: one")
    await rig.people.wait_text(rig.chat, "echo: two")


async def test_what_is_to_be_tried_again_while_the_bot_is_down_is_so_at_its_start(
    rig: TelegramFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one,) = await quarantined(rig, monkeypatch, "one")
    await rig.stop()
    await rig.database.write(lambda tx: quarantine.retry_tx(tx, one))
    await rig.start()
    await rig.people.wait_text(rig.chat, "echo: one")
    await rig.settled()
    assert rig.agent.texts == ["one"]


async def test_numbers_that_begin_anew_after_a_week_of_silence(rig: TelegramFixture) -> None:
    await rig.start()
    await rig.people.next_update_id(rig.bot.bot_id, 900_000_000)
    await rig.people.say(rig.chat, "before")
    await rig.people.wait_text(rig.chat, "echo: before")
    await rig.stop()
    rig.clock.offset_ms = 8 * 24 * 3600 * 1000
    await rig.people.advance(8 * 24 * 3600)
    await rig.people.next_update_id(rig.bot.bot_id, 5)
    await rig.people.inject(
        rig.bot.bot_id, {"update_id": 899_999_999, **await rig.message_update("after a week")}
    )
    await rig.start()
    await rig.people.wait_text(rig.chat, "echo: after a week")
    ((run, following),) = await rig.rows("SELECT run, next_offset FROM poll_offsets")
    assert (run, following) == (1, 900_000_000)
    await rig.people.say(rig.chat, "and on")
    await rig.people.wait_text(rig.chat, "echo: and on")


async def test_a_number_that_was_used_before_is_another_message(rig: TelegramFixture) -> None:
    """After the restart of the count even an equal number is new work."""
    await rig.start()
    await rig.people.next_update_id(rig.bot.bot_id, 500)
    await rig.people.say(rig.chat, "first")
    await rig.people.wait_text(rig.chat, "echo: first")
    await rig.stop()
    rig.clock.offset_ms = 8 * 24 * 3600 * 1000
    await rig.people.advance(8 * 24 * 3600)
    await rig.people.inject(
        rig.bot.bot_id, {"update_id": 500, **await rig.message_update("second")}
    )
    await rig.start()
    await rig.people.wait_text(rig.chat, "echo: second")
    assert rig.agent.texts == ["first", "second"]


async def test_a_second_poller_is_named_and_outlived(rig: TelegramFixture) -> None:
    rig.limits = rig.quick(poll_s=2.0)
    await rig.start()
    conflicts: list[ChannelReport] = []
    while not conflicts:  # the last one to poll is served: the bot, if the other was between two
        other = await rig.people.call(TOKEN, "getUpdates", timeout=5)
        conflicts = [r for r in rig.reports if r.state is ChannelState.CONFLICT]
        assert conflicts or other["status"] == 409
    (conflict, *_) = conflicts
    assert "another program polls" in conflict.detail
    assert not conflict.is_well
    await rig.people.say(rig.chat, "still there?")
    await rig.people.wait_text(rig.chat, "echo: still there?")
    assert rig.reports[-1].state is ChannelState.UP


async def test_an_unknown_token_ends_the_life(rig: TelegramFixture) -> None:
    await rig.people.revoke(rig.bot.bot_id)
    with pytest.raises(TokenRefused):
        await rig.start()
    assert rig.reports[-1].state is ChannelState.REFUSED
    assert "@BotFather" in rig.reports[-1].detail


async def test_a_server_that_fails_is_waited_out(rig: TelegramFixture) -> None:
    await rig.people.fault("server_error", method="getUpdates", count=2)
    await rig.people.fault("cut_after", method="getUpdates", count=1, skip=2)
    await rig.people.say(rig.chat, "through it")
    await rig.start()
    await rig.people.wait_text(rig.chat, "echo: through it")
    assert ChannelState.RETRYING in [report.state for report in rig.reports]
    assert rig.agent.texts == ["through it"]


async def test_commands_know_whether_others_read_along(rig: TelegramFixture) -> None:
    group = await rig.people.group("Group", [rig.ann, rig.bot.bot_id])
    rig.allow(groups=(int(group),))
    rig.spec = replace(rig.spec, group_mention_only=False)
    await rig.start()
    for chat in (rig.chat, group):
        await rig.people.say(chat, "/ping@bob_bot", user=rig.ann)
        record = await rig.people.wait_text(chat, "pong")
        await rig.people.press(chat, record["message_id"], text="again", user=rig.ann)
        await rig.people.wait_text(chat, "pong again")
    assert rig.shared == [False, False, True, True]


async def test_strangers_get_nothing(
    rig: TelegramFixture, caplog: pytest.LogCaptureFixture
) -> None:
    eve = await rig.people.user("Eve")
    chat = await rig.people.private(eve, rig.bot.bot_id)
    for text in ("let me in", "/ping", "/start"):
        await rig.people.say(chat, text)
    message_id = await rig.people.send_file(chat, b"data", name="x.txt")
    await rig.people.edit(chat, 1, "really")
    await rig.people.say(rig.chat, "hello")
    await rig.start()
    await rig.people.wait_text(rig.chat, "echo: hello")
    await rig.settled()
    assert await rig.people.texts(chat) == []
    assert message_id
    assert rig.agent.texts == ["hello"]
    assert rig.ran == []
    assert not (rig.folder / "workspace" / "inbox").exists()
    told = caplog.text
    assert told.count(f"add {eve} to allowed_user_ids") == 1
    assert await rig.states() == {"skipped": 5, "done": 1}


async def test_done_updates_are_pruned_after_two_days_and_poison_is_kept(
    rig: TelegramFixture,
) -> None:
    await rig.people.inject(rig.bot.bot_id, {"message": {"message_id": "one"}})
    await rig.people.say(rig.chat, "old")
    await rig.start()
    await rig.people.wait_text(rig.chat, "echo: old")
    rig.clock.offset_ms = 2 * 24 * 3600 * 1000 + 60_000
    await prune(rig.database, stored.retention_rules(), clock=rig.clock, pause_s=0)
    assert await rig.states() == {"quarantined": 1}
    await rig.people.say(rig.chat, "new")
    await rig.people.wait_text(rig.chat, "more than 24 hours late")


async def test_a_draining_bot_ends_at_once_although_it_polls(rig: TelegramFixture) -> None:
    await rig.start()
    await rig.stop()
    assert rig.reports[-1].state is ChannelState.STOPPED


async def test_a_full_mailbox_is_an_honest_refusal(rig: TelegramFixture) -> None:
    rig.agent.gate.clear()
    object.__setattr__(rig.mailbox.context.limits, "queue_limit", 2)
    await rig.start()
    for number in range(3):
        await rig.people.say(rig.chat, f"text {number}")
    await rig.people.wait_text(rig.chat, "the queue of")
    rig.agent.gate.set()
    await rig.people.wait_text(rig.chat, "echo: text 1")
    await rig.settled()
    assert rig.agent.texts == ["text 0", "text 1"]


async def test_many_refused_texts_are_one_word_with_their_number(rig: TelegramFixture) -> None:
    rig.agent.gate.clear()
    object.__setattr__(rig.mailbox.context.limits, "queue_limit", 3)
    await rig.start()
    for number in range(25):
        await rig.people.say(rig.chat, f"t{number}")
    await rig.updates_done(25)
    rig.agent.gate.set()
    await rig.people.wait_text(rig.chat, "echo: t2")
    told = [text for text in await rig.people.texts(rig.chat) if "is full" in text]
    assert len(told) == 1
    assert told[0].startswith("22 messages were not taken")
    assert "t3" in told[0]
    assert "and 17 more" in told[0]
    assert rig.agent.texts == ["t0", "t1", "t2"]


async def test_what_was_refused_and_not_told_is_left_to_the_next_life(rig: TelegramFixture) -> None:
    rig.agent.gate.clear()
    object.__setattr__(rig.mailbox.context.limits, "queue_limit", 1)
    await rig.start()
    await rig.people.say(rig.chat, "t0")
    await rig.updates_done(1)
    await rig.people.say(rig.chat, "t1")
    async with asyncio.timeout(BOUND_S):
        while (await rig.states()).get("received") != 1:
            await asyncio.sleep(0.01)
    await rig.die()
    rig.agent.gate.set()
    async with asyncio.timeout(BOUND_S):
        while await rig.rows("SELECT 1 FROM messages WHERE state <> 'done'"):
            await asyncio.sleep(0.01)
    await rig.start()
    await rig.people.wait_text(rig.chat, "echo: t1")


async def test_a_store_that_fails_confirms_nothing(
    rig: TelegramFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The poll is made again from the old offset, and the text is answered once."""
    await rig.start()
    real, failures = rig.database.write, 0

    async def write(fn: Any, *args: Any, name: str = "", **more: Any) -> Any:
        nonlocal failures
        if name in ("telegram.keep", "mailbox.accept") and failures < 4:
            failures += 1
            raise StoreUnavailable("the disk is full", reason="full")
        return await real(fn, *args, name=name, **more)

    monkeypatch.setattr(rig.database, "write", write)
    monkeypatch.setattr(rig.clock, "sleep", lambda seconds: asyncio.sleep(min(seconds, 0.01)))
    await rig.people.say(rig.chat, "patience")
    await rig.people.wait_text(rig.chat, "echo: patience")
    assert failures == 4
    assert rig.agent.texts == ["patience"]


async def test_many_deaths_lose_and_double_nothing_and_keep_the_order(rig: TelegramFixture) -> None:
    """Lives of the bot end at any instant while five people write."""
    chance = random.Random(20)
    chats = [rig.chat]
    for number in range(4):
        person = await rig.people.user(f"P{number}")
        chats.append(await rig.people.private(person, rig.bot.bot_id))
        rig.allow(person)
    wanted = {str(chat).partition("@")[0]: [f"{n}" for n in range(20)] for chat in chats}

    async def write(chat: str) -> None:
        for number in range(20):
            await rig.people.say(chat, f"{number}")
            await asyncio.sleep(chance.uniform(0.0, 0.1))

    async with asyncio.TaskGroup() as people:
        for chat in chats:
            people.create_task(write(chat))
        for _ in range(12):
            await rig.start()
            await asyncio.sleep(chance.uniform(0.0, 0.15))
            await rig.die()
    await rig.start()
    async with asyncio.timeout(BOUND_S):
        while len(rig.agent.seen) < 100 or "received" in await rig.states():
            await asyncio.sleep(0.01)
    got: dict[str, list[str]] = {}
    for place, text, _ in rig.agent.seen:
        got.setdefault(place, []).append(text)
    assert got == wanted
    assert await rig.states() == {"done": 100}


async def test_an_idle_bot_has_one_request_under_way_and_writes_nothing(
    rig: TelegramFixture,
) -> None:
    await rig.start()

    async def seen() -> tuple[dict[str, int], int]:
        """After a while in which nothing is to happen, so there is no event to wait for."""
        await asyncio.sleep(0.7)
        return (await rig.people.report())["calls"], rig.database.stats.commits

    last = await seen()
    async with asyncio.timeout(BOUND_S):
        while "getUpdates" not in last[0] or (now := await seen()) != last:  # it still begins
            last = now if "getUpdates" in last[0] else await seen()
    assert await seen() == last
    assert last[0]["getUpdates"] <= 2


async def test_while_a_commit_takes_long_the_server_keeps_the_update(
    rig: TelegramFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.start()
    real, gate, reached = rig.database.write, asyncio.Event(), asyncio.Event()

    async def write(fn: Any, *args: Any, name: str = "", **more: Any) -> Any:
        if name == "telegram.keep":
            reached.set()
            await gate.wait()
        return await real(fn, *args, name=name, **more)

    monkeypatch.setattr(rig.database, "write", write)
    await rig.people.say(rig.chat, "slow disk")
    async with asyncio.timeout(BOUND_S):
        await reached.wait()
    await asyncio.sleep(0.3)  # time in which a poll that does not wait for the commit would come
    bot = rig.fake.world.bot_by_token(TOKEN)
    assert bot is not None
    assert len(rig.fake.world.pending(bot)) == 1
    calls = (await rig.people.report())["calls"]["getUpdates"]
    gate.set()
    await rig.people.wait_text(rig.chat, "echo: slow disk")
    assert rig.fake.world.pending(bot) == []
    assert (await rig.people.report())["calls"]["getUpdates"] == calls + 1


async def test_an_album_whose_first_picture_is_beyond_us_is_not_lost(
    rig: TelegramFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = MessageHandler._say
    failed = False

    async def fail_once(self: Any, *args: Any) -> None:
        nonlocal failed
        if not failed:
            failed = True
            raise ZeroDivisionError("on purpose")
        await real(self, *args)

    monkeypatch.setattr(MessageHandler, "_say", fail_once)
    await rig.start()
    for number in range(3):
        await rig.people.send_file(
            rig.chat, b"x", name=f"{number}.txt", caption=f"n{number}", media_group_id="a"
        )
    await rig.people.wait_text(rig.chat, "echo: n1")
    assert await rig.states() == {"quarantined": 1, "done": 2}


async def test_a_life_that_ends_while_streams_are_looked_for_leaves_nothing_behind(
    rig: TelegramFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eyes may be set by then; that they end is looked at after each test."""
    looking = asyncio.Event()

    async def never(streams: Streams) -> None:
        looking.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Streams, "_restore_signs", never)
    await rig.people.say(rig.chat, "hello")
    await rig.start()
    await looking.wait()
    async with asyncio.timeout(BOUND_S):
        while not rig.agent.seen:
            await rig.clock.sleep(0.01)
    await rig.die()


async def test_privacy_mode_is_told_where_a_group_is_to_be_heard_whole(
    rig: TelegramFixture,
) -> None:
    group = await rig.people.group("Team", [rig.ann, rig.bot.bot_id])
    rig.allow(groups=(int(group),))
    await rig.start()
    assert not rig.reports[-1].notes
    rig.spec = rig.spec_with(group_mention_only=False)
    await rig.people.say(rig.chat, "wake")
    await rig.until(lambda: bool(rig.reports[-1].notes))
    assert "/setprivacy" in "".join(rig.reports[-1].notes)
    await rig.stop()
    await rig.people.add_bot(rig.bot.token, can_read_all_group_messages=True)
    await rig.start()
    assert not rig.reports[-1].notes


async def test_a_long_pause_is_shown_also_by_the_next_life(rig: TelegramFixture) -> None:
    await rig.start()
    await rig.people.fault("flood", method="sendMessage", retry_after=13_938, count=1)
    await rig.people.say(rig.chat, "hello")
    await rig.until(lambda: bool(rig.reports[-1].paused))
    paused = rig.reports[-1].paused
    assert paused.startswith("Telegram asks for a pause until ")
    assert paused.endswith(f" UTC in the chat {rig.ann}")
    # The next life reads it from the store, where the relay writes it down a moment later.
    kept = "SELECT count(*) FROM outbox WHERE state = 'pending' AND attempts = 0 AND not_before > ?"
    soon = rig.mailbox.context.steady.now_ms() + 60_000
    async with asyncio.timeout(BOUND_S):
        while not await rig.database.read(lambda r: r.scalar(kept, (soon,))):
            await asyncio.sleep(0.01)
    await rig.stop()
    await rig.start()
    await rig.until(lambda: bool(rig.reports[-1].paused))
    assert rig.reports[-1].is_well
