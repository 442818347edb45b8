"""What every platform does with a part of the outbox: once, in order, whole, or a reason."""

from __future__ import annotations

import asyncio

from agentsup.mailbox.delivery import outbox
from agentsup.model.channel import RetryReason
from tests.component.channels.telegram.bench import AGENT
from tests.contract.platform.chats import PlatformChat
from tests.support.bound import BOUND_S

LONG = "\n\n".join(f"Paragraph {n}: " + "lorem ipsum " * 250 for n in range(30))


async def test_a_text_becomes_one_message(chat: PlatformChat) -> None:
    part = await chat.add("The **answer**.")
    assert await chat.settled(part) == "delivered"
    (text,) = await chat.texts()
    assert text.replace("*", "") == "The answer."


async def test_a_long_text_comes_whole_and_in_order(chat: PlatformChat) -> None:
    part = await chat.add(LONG)
    assert await chat.settled(part) == "delivered"
    texts = await chat.texts()
    assert len(texts) > 1
    whole = "\n".join(texts)
    places = [whole.index(f"Paragraph {n}:") for n in range(30)]
    assert places == sorted(places)
    assert whole.count("lorem") == 30 * 250


async def test_parts_of_a_chat_come_in_their_order(chat: PlatformChat) -> None:
    parts = [await chat.add(f"text {number}", kind="notice") for number in range(5)]
    for part in parts:
        await chat.settled(part)
    assert await chat.texts() == [f"text {number}" for number in range(5)]


async def test_a_file_is_sent_and_a_missing_one_says_why(chat: PlatformChat) -> None:
    (chat.workspace / "table.csv").write_text("a,b\n")
    sent = await chat.add("", kind="file", path="table.csv")
    missing = await chat.add("", kind="file", path="gone.csv")
    assert await chat.settled(sent) == "delivered"
    assert await chat.settled(missing) == "delivered"
    assert await chat.files() == ["table.csv"]
    assert any("gone.csv" in text for text in await chat.texts())


async def test_what_waits_for_a_bot_is_due_when_it_connects(chat: PlatformChat) -> None:
    await chat.end()
    await chat.begin(attached=False)
    part = await chat.add("late")
    async with asyncio.timeout(BOUND_S):
        while await chat.state_of(part) != ("pending", "absent_bot"):
            await asyncio.sleep(0.02)
    chat.attach()
    woken = await chat.database.write(
        lambda tx: outbox.make_due_tx(
            tx, channel=chat.channel_name, agent_id=AGENT, reason=RetryReason.ABSENT_BOT
        )
    )
    assert woken == 1
    async with asyncio.timeout(BOUND_S):
        assert await chat.settled(part) == "delivered"


async def test_after_a_pause_that_was_asked_for_it_comes_once(chat: PlatformChat) -> None:
    await chat.ask_for_pause()
    part = await chat.add("after the pause")
    assert await chat.settled(part) == "delivered"
    assert await chat.texts() == ["after the pause"]


async def test_with_its_answer_lost_a_text_is_still_shown_once(chat: PlatformChat) -> None:
    """Where sends have keys the outcome becomes known; elsewhere the person is asked."""
    await chat.lose_answer()
    part = await chat.add("only once")
    state = await chat.settled(part)
    assert state == ("delivered" if chat.is_idempotent else "unknown")
    texts = await chat.until(lambda texts: chat.is_idempotent or len(texts) > 1)
    assert [text for text in texts if text == "only once"] == ["only once"]
    assert len(texts) == (1 if chat.is_idempotent else 2), "a note asks about the unknown one"


async def test_a_chat_that_is_gone_ends_the_part(chat: PlatformChat) -> None:
    await chat.go_away()
    part = await chat.add("nobody reads it")
    assert await chat.settled(part) == "dropped"
    assert await chat.texts() == []


async def test_the_next_process_sends_the_rest_and_nothing_twice(chat: PlatformChat) -> None:
    part = await chat.add(LONG)
    await chat.until(bool)
    await chat.end()
    await chat.begin()
    assert await chat.settled(part) in {"delivered", "unknown"}
    whole = "\n".join(text for text in await chat.texts() if len(text) > 1_000)  # no notes
    assert all(whole.count(f"Paragraph {n}:") <= 1 for n in range(30))
    if chat.is_idempotent:
        assert all(f"Paragraph {n}:" in whole for n in range(30))
