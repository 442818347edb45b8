"""What every platform shows while an answer is written, and what is left of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.contract.platform.chats import PlatformChat
from tests.support.bound import BOUND_S

ANSWER = "The first words and the last."


async def test_one_message_grows_into_the_answer(chat: PlatformChat) -> None:
    await chat.accept()
    await chat.turn("The first words")
    await chat.until(lambda texts: len(texts) == 1 and "The first words" in texts[0])
    chat.live.delta("m1", " and more")
    await chat.until(lambda texts: "and more" in texts[0])
    assert await chat.settled(await chat.finish(ANSWER)) == "delivered"
    assert await chat.until(lambda texts: texts == [ANSWER])
    await chat.forgotten()
    assert await chat.texts() == [ANSWER]


async def test_a_stopped_answer_stays_and_says_so(chat: PlatformChat) -> None:
    await chat.accept()
    await chat.turn("The first words")
    await chat.until(bool)
    chat.live.end("m1")
    await chat.become("cancelled")
    await chat.forgotten()
    (text,) = await chat.texts()
    assert text.startswith("The first words")
    assert "stopped" in text.lower()


async def test_what_was_shown_before_a_question_is_taken_away(chat: PlatformChat) -> None:
    await chat.accept()
    await chat.turn("Let me ask first")
    await chat.until(bool)
    chat.live.end("m1")
    await chat.become("parked")
    await chat.forgotten()
    assert await chat.texts() == []


async def test_over_two_lives_the_answer_stands_there_once(chat: PlatformChat) -> None:
    await chat.accept()
    await chat.turn("The first words")
    await chat.until(bool)
    await chat.end()
    await chat.begin()
    assert await chat.settled(await chat.finish(ANSWER)) == "delivered"
    await chat.forgotten()
    assert await chat.texts() == [ANSWER]


async def test_a_stream_whose_first_message_is_in_doubt_spoils_no_answer(
    chat: PlatformChat,
) -> None:
    await chat.accept()
    await chat.lose_answer()
    await chat.turn("The first words")
    await asyncio.sleep(1.0)
    assert await chat.settled(await chat.finish(ANSWER)) == "delivered"
    texts = await chat.until(lambda texts: ANSWER in texts)
    assert texts.count(ANSWER) == 1


async def test_typing_is_shown_while_a_turn_runs_and_then_no_more(chat: PlatformChat) -> None:
    await chat.accept()
    await chat.turn("words")
    await soon(chat.is_typing)
    await chat.finish(ANSWER)
    await soon(lambda: ends(chat.is_typing))


async def test_a_message_is_marked_as_seen_until_its_work_has_ended(chat: PlatformChat) -> None:
    await chat.accept()
    await chat.hear()
    await soon(lambda: is_seen(chat))
    await chat.become("done", "ok")
    await soon(lambda: ends(lambda: is_seen(chat)))


async def is_seen(chat: PlatformChat) -> bool:
    return await chat.reactions() == ["👀"]


async def ends(look: Callable[[], Awaitable[bool]]) -> bool:
    return not await look()


async def soon(look: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not await look():
            await asyncio.sleep(0.05)
