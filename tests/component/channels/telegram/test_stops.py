"""A stop waits for nothing, and what was sent before it does not begin after it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentsup.channels.core.receiving import mark_tx
from agentsup.channels.core.receiving import rows as stored
from agentsup.channels.core.receiving.rows import SkipReason
from agentsup.commands.dispatch import Command
from agentsup.mailbox.messages import sessions
from agentsup.mailbox.messages.sessions import point_tx
from agentsup.model.control import CommandContext, CommandReply
from agentsup.model.errors import StoreUnavailable
from agentsup.model.principal import SYSTEM
from tests.component.channels.telegram.fixture import AGENT_ID, TelegramFixture, rigged
from tests.support.bound import BOUND_S


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[TelegramFixture]:
    async with rigged(tmp_path, limits="count") as rig:
        yield rig


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not is_so():
            await asyncio.sleep(0.01)


async def received(rig: TelegramFixture, count: int) -> None:
    """Wait until that many updates are kept and not handled."""
    async with asyncio.timeout(BOUND_S):
        while (await rig.states()).get("received", 0) < count:
            await asyncio.sleep(0.01)


async def undelivered(rig: TelegramFixture, count: int) -> None:
    """Wait until so many parts of answers and notices wait in the outbox."""
    async with asyncio.timeout(BOUND_S):
        while len(await rig.rows("SELECT 1 FROM outbox WHERE state = 'pending'")) < count:
            await asyncio.sleep(0.01)


async def another(rig: TelegramFixture, name: str) -> str:
    """The private chat of one more person who may write."""
    person = await rig.people.user(name)
    rig.allow(person)
    return await rig.people.private(person, rig.bot.bot_id)


def add_command(rig: TelegramFixture, name: str) -> asyncio.Event:
    """A command that lasts until the event is set, however it is given."""
    gate = asyncio.Event()

    async def slow(context: CommandContext, rest: str) -> CommandReply:
        rig.ran.append(f"{name} began")
        await gate.wait()
        return CommandReply(f"{name} is done")

    rig.commands._table[name] = Command(name, "", "takes long", slow)
    return gate


async def test_a_stop_passes_a_slow_download_which_is_dropped(rig: TelegramFixture) -> None:
    await rig.start()
    await rig.people.fault("hang", method="getFile", skip=1, count=1, seconds=BOUND_S)
    for name in ("a.txt", "b.txt"):
        await rig.people.send_file(
            rig.chat, b"data", name=name, caption="slow", media_group_id="both"
        )
    async with asyncio.timeout(BOUND_S):
        while "getFile" not in (await rig.people.report())["calls"]:
            await asyncio.sleep(0.01)
    await rig.people.say(rig.chat, "and this text")
    await rig.people.say(rig.chat, "/stop that")
    await rig.people.wait_text(rig.chat, "3 messages that were not read yet were dropped too")
    await rig.people.say(rig.chat, "after it")
    await rig.people.wait_text(rig.chat, "echo: after it")
    await rig.settled()
    assert rig.agent.texts == ["after it"]
    assert [path for path in (rig.folder / "workspace").rglob("*") if path.is_file()] == []
    await rig.people.clear_faults()


async def test_a_stop_passes_a_slow_command(rig: TelegramFixture) -> None:
    gate = add_command(rig, "restart")
    await rig.start()
    await rig.people.say(rig.chat, "/restart")
    await until(lambda: "restart began" in rig.ran)
    await rig.people.say(rig.chat, "/stop")
    await rig.people.wait_text(rig.chat, "stopped")
    gate.set()
    await rig.people.wait_text(rig.chat, "restart is done")


async def test_a_press_passes_a_slow_command_and_a_stop_a_slow_press(rig: TelegramFixture) -> None:
    gate = add_command(rig, "slow")
    await rig.start()
    await rig.people.say(rig.chat, "/ping one")
    record = await rig.people.wait_text(rig.chat, "pong one")
    await rig.people.say(rig.chat, "/slow")
    await until(lambda: "slow began" in rig.ran)
    await rig.people.press(rig.chat, record["message_id"], text="again")
    await until(lambda: "ping again" in rig.ran)
    rig.commands._table["ping"] = rig.commands._table["slow"]
    record = await rig.people.wait_text(rig.chat, "pong again")
    await rig.people.press(rig.chat, record["message_id"], text="again")
    await until(lambda: rig.ran.count("slow began") == 2)
    await rig.people.say(rig.chat, "/stop")
    await rig.people.wait_text(rig.chat, "stopped")
    gate.set()


async def test_downloads_in_all_places_hold_up_no_stop_and_no_text_elsewhere(
    rig: TelegramFixture,
) -> None:
    rig.limits = rig.quick(chats_at_once=3)
    await rig.start()
    await rig.people.fault("hang", method="getFile", seconds=BOUND_S)
    for number in range(4):
        chat = await another(rig, f"U{number}")
        await rig.people.send_file(chat, b"d", name="a.txt", caption="x")
    await rig.people.say(rig.chat, "/stop")
    await rig.people.wait_text(rig.chat, "stopped")
    await rig.people.say(rig.chat, "a text")
    await rig.people.wait_text(rig.chat, "echo: a text")
    await rig.people.clear_faults()


async def test_a_full_memory_holds_up_no_stop_and_keeps_the_order(rig: TelegramFixture) -> None:
    rig.limits = rig.quick(backlog=10)
    other = await another(rig, "Zoe")
    await rig.start()
    await rig.people.fault("hang", method="getFile", count=1, seconds=BOUND_S)
    await rig.people.send_file(rig.chat, b"d", name="a.txt", caption="first")
    wanted = [f"t{number}" for number in range(30)]
    for text in wanted:
        await rig.people.say(rig.chat, text)
    await rig.people.say(other, "/stop")
    await rig.people.wait_text(other, "stopped")
    await rig.people.clear_faults()
    await until(lambda: len(rig.agent.seen) == 31)
    assert rig.agent.texts == ["first", *wanted]


async def test_a_stop_behind_many_texts_drops_them_all(rig: TelegramFixture) -> None:
    rig.agent.gate.clear()
    for number in range(100):
        await rig.people.say(rig.chat, f"t{number}")
    await rig.people.say(rig.chat, "/stop")
    await rig.people.say(rig.chat, "after it")
    stopped = asyncio.Event()

    async def stop(context: CommandContext, rest: str) -> CommandReply:
        """As the real one does, what is in the mailbox ends."""
        await rig.mailbox.control.stop(f"agent:{context.agent_id}", context.principal)
        stopped.set()
        return CommandReply("stopped")

    rig.commands._table["stop"] = Command("stop", "", "", stop)
    await rig.start()
    async with asyncio.timeout(BOUND_S):
        await stopped.wait()
    rig.agent.gate.set()
    await rig.people.wait_text(rig.chat, "echo: after it")
    await rig.settled()
    assert [text for text in rig.agent.texts if text != "t0"] == ["after it"]


async def test_who_may_not_stop_drops_nothing(rig: TelegramFixture) -> None:
    """A stop of all chats is an operator's; another person's text waits on."""
    rig.commands._table["stop_all"] = Command(
        "stop_all", "", "", rig.commands._table["stop"].run, operator=True
    )
    chat = await another(rig, "Ben")
    await rig.start()
    await rig.people.fault("hang", method="getFile", count=1, seconds=BOUND_S)
    await rig.people.send_file(rig.chat, b"data", name="a.txt", caption="stays")
    await rig.people.say(chat, "/stop_all")
    await rig.people.wait_text(chat, "operator")
    await rig.people.clear_faults()
    await rig.people.wait_text(rig.chat, "echo: stays")


async def test_a_stop_reaches_every_chat_of_its_session(rig: TelegramFixture) -> None:
    chat = await another(rig, "Ben")
    await rig.start()
    await rig.people.say(rig.chat, "first")
    await rig.people.wait_text(rig.chat, "echo: first")
    ((session_id,),) = await rig.rows("SELECT session_id FROM sessions")
    key = f"chat:telegram:{chat.partition('@')[0]}"
    await rig.database.write(lambda tx: point_tx(tx, AGENT_ID, key, session_id))
    async with a_file_that_takes_long(rig):
        await rig.people.say(chat, "/stop")
        await rig.people.wait_text(chat, "stopped")
    await rig.people.say(rig.chat, "after it")
    await rig.people.wait_text(rig.chat, "echo: after it")
    await rig.settled()
    assert rig.agent.texts == ["first", "after it"]
    told = await rig.people.texts(rig.chat)
    assert sum("was not read yet was dropped" in text for text in told) == 2


@pytest.mark.parametrize("is_written", [False, True])
async def test_what_a_stop_from_another_chat_has_dropped_is_told_after_a_restart(
    rig: TelegramFixture, monkeypatch: pytest.MonkeyPatch, is_written: bool
) -> None:
    """The life of the stop ends before it has told anybody; ``is_written``: what it would tell
    waits in the outbox, for which this life has no way out."""
    rig.commands._table["stop_all"] = Command(
        "stop_all", "", "", rig.commands._table["stop"].run, operator=True
    )
    chat = await another(rig, "Ben")
    await rig.people.fault("hang", method="getFile", count=1, seconds=BOUND_S)
    await rig.people.send_file(chat, b"data", name="a.txt", caption="goes")
    await rig.people.say(chat, "behind it")
    if is_written:
        await rig.people.say(rig.chat, "/stop_all")
        with monkeypatch.context() as patch:
            patch.setattr(rig.channel, "attach", lambda *given: None)
            await rig.start()
            await undelivered(rig, 1)  # the answer to the stop; the file is on its way at most
            await rig.people.clear_faults()
            await undelivered(rig, 3)
        await rig.stop()
    else:
        await rig.start()
        await received(rig, 2)
        # A life that goes on would tell of it at once; the stop is written as that life left it.
        await rig.die()
        found = await rig.database.read(lambda r: stored.waiting(r, "telegram", before=1 << 40))
        assert len(found) == 2
        await rig.database.write(lambda tx: stored.skip_tx(tx, found, SkipReason.STOPPED_ELSEWHERE))
    await rig.people.clear_faults()
    assert await rig.people.texts(chat) == []
    for life in range(2):
        await rig.start()
        await rig.people.say(rig.chat, f"/ping {life}")
        await rig.people.wait_text(rig.chat, f"pong {life}")
        await rig.settled()
        await rig.delivered()
        await rig.stop()
    told = await rig.people.texts(chat)
    assert sum("was not read yet was dropped" in text for text in told) == 2


async def test_a_stop_counts_what_would_have_been_answered(rig: TelegramFixture) -> None:
    eve = await rig.people.user("Eve")
    group = await rig.people.group("Team", [rig.ann, eve, rig.bot.bot_id])
    await rig.people.add_bot(rig.bot.token, can_read_all_group_messages=True)
    rig.allow(groups=(int(group),))
    rig.spec = replace(rig.spec, group_mention_only=False)
    await rig.start()
    await rig.people.fault("hang", method="getFile", count=1, seconds=BOUND_S)
    await rig.people.send_file(group, b"data", name="a.txt", caption="a file", user=rig.ann)
    await rig.people.say(group, "a stranger's", user=eve)
    await rig.people.say(group, "for us", user=rig.ann)
    await rig.people.say(group, "/stop", user=rig.ann)
    await rig.people.wait_text(group, "2 messages that were not read yet were dropped too")
    await rig.people.clear_faults()


async def test_many_presses_are_a_bounded_number_of_tasks(rig: TelegramFixture) -> None:
    await rig.start()
    await rig.people.say(rig.chat, "/ping one")
    record = await rig.people.wait_text(rig.chat, "pong one")
    await rig.people.fault("hang", method="getFile", count=1, seconds=BOUND_S)
    await rig.people.fault("hang", method="answerCallbackQuery", seconds=BOUND_S)
    await rig.people.send_file(rig.chat, b"d", name="a.txt", caption="slow")
    data = record["message"]["reply_markup"]["inline_keyboard"][0][0]["callback_data"]
    before = len(asyncio.all_tasks())
    for _ in range(150):
        await rig.people.press(rig.chat, record["message_id"], data=data)
    async with asyncio.timeout(BOUND_S):
        while (await rig.rows("SELECT COUNT(*) FROM received"))[0][0] < 152:
            await asyncio.sleep(0.01)
    assert len(asyncio.all_tasks()) - before < 15
    await rig.people.clear_faults()


async def test_a_stop_needs_no_name_in_a_group(rig: TelegramFixture) -> None:
    await rig.people.add_bot(rig.bot.token, can_read_all_group_messages=True)
    group = await rig.people.group("Team", [rig.ann, rig.bot.bot_id])
    rig.allow(groups=(int(group),))
    await rig.start()
    await rig.people.say(group, "/stop@other_bot", user=rig.ann)
    await rig.people.say(group, "/ping", user=rig.ann)
    await rig.people.say(group, "/stop", user=rig.ann)
    await rig.people.wait_text(group, "stopped")
    await rig.settled()
    assert rig.ran == ["stop"]


@asynccontextmanager
async def a_file_that_takes_long(rig: TelegramFixture) -> AsyncIterator[None]:
    """Ann's file is on its way, with a text behind it; neither can be read before the end."""
    await rig.people.fault("hang", method="getFile", count=1, seconds=BOUND_S)
    await rig.people.send_file(rig.chat, b"data", name="a.txt", caption="a file")
    async with asyncio.timeout(BOUND_S):
        while "getFile" not in (await rig.people.report())["calls"]:
            await asyncio.sleep(0.01)
    await rig.people.say(rig.chat, "behind the file")
    await received(rig, 2)
    yield
    await rig.people.clear_faults()


async def stop_elsewhere(rig: TelegramFixture, scope: str, given_in: str = "matrix") -> None:
    """As the daemon does, whoever has given it."""
    await rig.mailbox.control.stop(scope, SYSTEM, also=lambda tx: mark_tx(tx, scope, given_in))


@pytest.mark.parametrize("scope", ["all", f"agent:{AGENT_ID}"])
@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_stop_given_elsewhere_holds_for_what_nobody_has_read(
    rig: TelegramFixture, scope: str, is_killed: bool
) -> None:
    await rig.start()
    async with a_file_that_takes_long(rig):
        await stop_elsewhere(rig, scope)
        if is_killed:
            await rig.die()
            await rig.people.clear_faults()
            await rig.start()
        else:
            await rig.people.wait_text(rig.chat, "not read yet was dropped")
            assert (await rig.people.report())["calls"]["getFile"] == 1, "it was waited for"
        await rig.people.say(rig.chat, "after it")
        await rig.people.wait_text(rig.chat, "echo: after it")
    await rig.settled()
    assert rig.agent.texts == ["after it"]
    told = await rig.people.texts(rig.chat)
    assert sum("was not read yet was dropped" in text for text in told) == 2
    assert [path for path in (rig.folder / "workspace").rglob("*") if path.is_file()] == []
    # Nothing of it lives on: the next stop finds only what waits then.
    await stop_elsewhere(rig, scope)
    assert await rig.rows("SELECT * FROM stop_marks") == []


async def test_a_stop_given_elsewhere_keeps_to_its_scope(rig: TelegramFixture) -> None:
    """Not of another agent, nor of another session, nor of what its own channel decides."""
    await rig.start()
    await rig.people.say(rig.chat, "first")
    await rig.people.wait_text(rig.chat, "echo: first")
    other = await rig.database.write(
        lambda tx: sessions.new_tx(
            tx, AGENT_ID, "chat:web:ann", at=rig.clock.now_ms(), entropy=rig.entropy
        )
    )
    async with a_file_that_takes_long(rig):
        await stop_elsewhere(rig, "agent:agt_other")
        await stop_elsewhere(rig, f"session:{other}")
        await stop_elsewhere(rig, "all", given_in="telegram")
    await rig.people.wait_text(rig.chat, "echo: behind the file")
    assert rig.agent.texts == ["first", "a file", "behind the file"]


async def test_a_stop_that_could_not_be_written_holds_for_them_when_it_is(
    rig: TelegramFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.start()
    async with a_file_that_takes_long(rig):
        with monkeypatch.context() as patch:

            async def away(*given: Any, **more: Any) -> None:
                raise StoreUnavailable("the disk is full", reason="full")

            patch.setattr(rig.mailbox.database, "write", away)
            with pytest.raises(StoreUnavailable):
                await stop_elsewhere(rig, "all")
        await rig.database.write(lambda tx: tx.touch(f"agent:{AGENT_ID}"))
        async with asyncio.timeout(BOUND_S):
            while not await rig.rows("SELECT 1 FROM stop_marks"):
                await asyncio.sleep(0.01)
    await rig.people.say(rig.chat, "after it")
    await rig.people.wait_text(rig.chat, "echo: after it")
    assert "behind the file" not in rig.agent.texts
