"""Who goes first, who waits and who is dropped, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import pytest_asyncio

from agentsup.channels.core.errors import LowPriorityDropped, NotSent, RateLimited
from agentsup.channels.core.files import UploadFile
from agentsup.channels.telegram.flood import CallKind, RateLimiter
from agentsup.channels.telegram.sender import Sender, SendPriority
from tests.support.loop_clock import LoopClock

pytestmark = pytest.mark.virtual

FINAL, EDIT, TYPING, DRAFT = (
    SendPriority.FINAL,
    SendPriority.EDIT,
    SendPriority.TYPING,
    SendPriority.DRAFT,
)


class Platform:
    """Notes calls with their times; answers after ``takes_s``, or raises what is planned."""

    def __init__(self, clock: LoopClock) -> None:
        self.clock = clock
        self.flood = RateLimiter()
        self.calls: list[tuple[float, int, str]] = []
        self.takes_s = 0.0
        self.troubles: dict[int, Exception] = {}

    async def call(
        self,
        method: str,
        *,
        timeout_s: float = 20.0,
        files: Mapping[str, UploadFile] | None = None,
        **fields: Any,
    ) -> Any:
        chat_id = fields["chat_id"]
        self.calls.append((self.clock.monotonic(), chat_id, str(fields.get("text", method))))
        await self.clock.sleep(self.takes_s)
        if chat_id in self.troubles:
            raise self.troubles.pop(chat_id)
        return {"message_id": len(self.calls)}

    def texts(self) -> list[str]:
        return [text for *_, text in self.calls]


class Fixture:
    def __init__(self) -> None:
        self.clock = LoopClock()
        self.platform = Platform(self.clock)
        self.sender = Sender(self.platform, self.clock)  # type: ignore[arg-type]  # a twin of what is used
        self.began_at = self.clock.monotonic()

    def send(
        self, text: str, chat_id: int = 7, priority: SendPriority = FINAL, **more: Any
    ) -> asyncio.Task[Any]:
        method = more.pop("method", "sendMessage")
        return asyncio.create_task(
            self.sender.send(chat_id, method, priority=priority, text=text, **more)
        )

    @property
    def passed_s(self) -> float:
        return round(self.clock.monotonic() - self.began_at, 3)


@pytest_asyncio.fixture
async def rig() -> AsyncIterator[Fixture]:
    rig = Fixture()
    yield rig
    await rig.sender.close()


async def test_a_burst_goes_at_once_and_what_is_too_far_off_comes_back(rig: Fixture) -> None:
    sends = [rig.send(str(n)) for n in range(8)]
    done = await asyncio.gather(*sends, return_exceptions=True)
    assert rig.platform.texts() == [str(n) for n in range(6)]
    assert [round(at - rig.began_at) for at, *_ in rig.platform.calls] == [0, 0, 0, 3, 3, 3]
    assert all(isinstance(one, RateLimited) for one in done[6:])
    assert 0 < done[6].retry_after_s <= 6.0  # type: ignore[union-attr]  # asserted above


async def test_other_chats_do_not_wait_for_a_full_one(rig: Fixture) -> None:
    full = [rig.send(str(n)) for n in range(4)]
    await rig.send("other", chat_id=8)
    assert rig.passed_s == 0.0
    await asyncio.gather(*full)
    assert rig.passed_s == 3.0


async def test_a_flood_pauses_its_chat_and_no_other(rig: Fixture) -> None:
    rig.platform.troubles[7] = RateLimited(4.0)
    with pytest.raises(RateLimited):
        await rig.send("a")
    assert rig.sender.pause_s(7) == 4.0
    await rig.send("b", chat_id=8)
    assert rig.passed_s == 0.0
    with pytest.raises(RateLimited) as error:  # near as it is, the outbox waits better
        await rig.send("too soon")
    assert (error.value.retry_after_s, rig.passed_s) == (4.0, 0.0)
    await asyncio.sleep(4.0)
    await rig.send("c")
    assert rig.passed_s == 4.0
    rig.platform.troubles[7] = RateLimited(60.0)
    with pytest.raises(RateLimited):
        await rig.send("d")
    with pytest.raises(RateLimited) as error:  # too far: told at once, and nothing is sent
        await rig.send("e")
    assert error.value.retry_after_s == 60.0
    assert rig.platform.texts() == ["a", "b", "c", "d"]


@pytest.mark.parametrize("method", ["sendMessageDraft", "sendChatAction", "setMessageReaction"])
async def test_refused_decoration_never_holds_up_an_answer(rig: Fixture, method: str) -> None:
    """In no chat, whether one is refused or many."""
    for chat_id in (7, 8, 9, -100):
        rig.platform.troubles[chat_id] = RateLimited(60.0)
        with pytest.raises(RateLimited):
            await rig.send("", chat_id, DRAFT, method=method, droppable=True)
    for chat_id in (7, 8, 9, -100, 10):
        await rig.send("answer", chat_id)
        await rig.send("edit", chat_id, EDIT, method="editMessageText", droppable=True)
    assert rig.passed_s == 0.0
    with pytest.raises(LowPriorityDropped):
        await rig.send("", priority=TYPING, method="sendChatAction", droppable=True)
    with pytest.raises(RateLimited):  # told at once: it may come back, as deletions do
        await rig.send("", priority=EDIT, method="deleteMessage")
    assert rig.platform.texts().count("answer") == 5


async def test_a_refused_edit_holds_up_messages_only_where_they_share_a_limit(rig: Fixture) -> None:
    for chat_id in (7, 8, -100):
        rig.platform.troubles[chat_id] = RateLimited(60.0)
        with pytest.raises(RateLimited):
            await rig.send("stream", chat_id, EDIT, method="editMessageText", droppable=True)
    await rig.send("answer", 7)
    await rig.send("elsewhere", 9)
    for chat_id, method in ((7, "editMessageText"), (-100, "sendMessage")):
        with pytest.raises(RateLimited) as error:
            await rig.send("too soon", chat_id, method=method)
        assert error.value.retry_after_s == 60.0
    assert rig.passed_s == 0.0
    assert rig.platform.texts() == ["stream"] * 3 + ["answer", "elsewhere"]
    assert [rig.sender.pause_s(7, kind) for kind in CallKind] == [0.0, 60.0, 60.0]
    await asyncio.sleep(60.0)
    await rig.send("the answer over the stream", 7, method="editMessageText")
    assert rig.passed_s == 60.0


async def test_decoration_is_dropped_and_never_waited_for(rig: Fixture) -> None:
    rig.platform.troubles[7] = RateLimited(4.0)
    with pytest.raises(RateLimited):
        await rig.send("a")
    with pytest.raises(LowPriorityDropped):
        await rig.send("", priority=TYPING, method="sendChatAction", droppable=True)
    assert rig.passed_s == 0.0
    with pytest.raises(LowPriorityDropped):
        await rig.send("", priority=EDIT, method="editMessageText", droppable=True)
    assert rig.passed_s <= 1.0
    assert rig.platform.texts() == ["a"]


async def test_answers_go_before_everything_that_waits(rig: Fixture) -> None:
    rig.platform.takes_s = 0.5
    edits = [
        rig.send(f"edit{n}", chat_id=n, priority=EDIT, method="editMessageText", droppable=True)
        for n in range(100, 140)
    ]
    await asyncio.sleep(0)
    finals = [rig.send(f"final{n}", chat_id=n) for n in range(200, 212)]
    await asyncio.gather(*finals)
    assert rig.passed_s == 0.5  # the limit keeps room for them
    await asyncio.gather(*edits, return_exceptions=True)
    texts = rig.platform.texts()
    assert [text for text in texts if text.startswith("final")] == [
        f"final{n}" for n in range(200, 212)
    ]
    assert texts.index("final211") < 30


async def test_a_newer_edit_takes_the_place_of_one_that_waits(rig: Fixture) -> None:
    def edit(text: str) -> asyncio.Task[Any]:
        return rig.send(
            text,
            priority=EDIT,
            method="editMessageText",
            droppable=True,
            replaces="stream:m",
        )

    for n in range(2):
        await edit(str(n))
    await asyncio.sleep(2.5)
    waiting = edit("old")
    await asyncio.sleep(0)
    newer = edit("new")
    with pytest.raises(LowPriorityDropped, match="newer"):
        await waiting
    await asyncio.sleep(0)
    assert rig.sender.withdraw("stream:m")
    assert not rig.sender.withdraw("stream:m")
    with pytest.raises(LowPriorityDropped):
        await newer
    assert rig.passed_s == 2.5
    assert rig.platform.texts() == ["0", "1"]


async def test_cancelled_while_it_waits_nothing_is_sent(rig: Fixture) -> None:
    sends = [rig.send(str(n)) for n in range(4)]
    await asyncio.gather(*sends[:3])
    sends[3].cancel()
    with pytest.raises(asyncio.CancelledError):
        await sends[3]
    await rig.send("next")
    assert rig.platform.texts() == ["0", "1", "2", "next"]
    assert rig.passed_s == 3.0


async def test_closed_it_sends_nothing_more(rig: Fixture) -> None:
    sends = [rig.send(str(n)) for n in range(4)]
    await asyncio.gather(*sends[:3])
    await rig.sender.close()
    for late in (sends[3], rig.send("late")):
        with pytest.raises(NotSent):
            await late


async def test_the_limits_outlive_a_sender(rig: Fixture) -> None:
    await asyncio.gather(*(rig.send(str(n)) for n in range(3)))
    await rig.sender.close()
    rig.sender = Sender(rig.platform, rig.clock)  # type: ignore[arg-type]  # a twin of what is used
    await rig.send("next life")
    assert rig.passed_s == 3.0


async def test_a_call_that_hangs_does_not_hold_its_chat_for_ever(rig: Fixture) -> None:
    rig.platform.takes_s = 100.0
    hanging = [rig.send(str(n), timeout_s=1000.0) for n in range(3)]
    await asyncio.sleep(0.1)
    rig.platform.takes_s = 0.0
    with pytest.raises(RateLimited):
        await rig.send("soon")
    await asyncio.sleep(3.0)
    await rig.send("after all")
    assert rig.passed_s < 10.0
    await asyncio.gather(*hanging)
