"""Streams in virtual time, over a real database and a platform that is a dictionary."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from agentsup.channels.core.errors import (
    ChatGone,
    LowPriorityDropped,
    NotSent,
    OutcomeUnknown,
    RateLimited,
    RequestRefused,
)
from agentsup.channels.telegram.errors import MarkupRefused, NotModified
from agentsup.channels.telegram.flood import CallKind
from agentsup.channels.telegram.live_answer import Streams
from agentsup.channels.telegram.sender import SendPriority
from agentsup.kit.clock import Clock
from agentsup.model.agent import Streaming
from agentsup.store import Database
from tests.support.loop_clock import LoopClock
from tests.support.outbox_fixture import virtual_store
from tests.support.stream_fixture import StreamsFixture

pytestmark = pytest.mark.virtual


ANN, GROUP = "77", "-100"
LIVE = Streaming(edit_interval_s=2.0, min_chars=20, idle_ms=500, drafts=True)
Trouble = Exception | Callable[[], Awaitable[None]]


class Platform:
    """What a chat shows. Trouble per method: an exception, or something to wait for first."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.messages: dict[int, str] = {}
        self.deleted: list[int] = []
        self.drafts: list[str] = []
        self.typed_at: list[float] = []
        self.reactions: dict[int, list[str]] = {}
        self.calls: list[tuple[float, str, dict[str, Any]]] = []
        self.trouble: dict[str, list[Trouble]] = {}
        self.late: dict[str, list[Trouble]] = {}
        """Trouble that comes after the effect."""
        self.pauses: dict[int, float] = {}
        self.message_pauses: dict[int, float] = {}
        self.changed = asyncio.Event()

    async def send(
        self,
        chat_id: int,
        method: str,
        *,
        priority: SendPriority,
        droppable: bool = False,
        replaces: str | None = None,
        timeout_s: float = 20.0,
        **fields: Any,
    ) -> Any:
        self.calls.append((self.clock.monotonic(), method, {"chat_id": chat_id, **fields}))
        await self._suffer(self.trouble, method)
        result = getattr(self, f"_{method}")(**fields)
        self.changed.set()
        await self._suffer(self.late, method)
        return result

    async def _suffer(self, trouble: dict[str, list[Trouble]], method: str) -> None:
        if waiting := trouble.get(method):
            first = waiting.pop(0)
            if isinstance(first, Exception):
                raise first
            await first()

    def withdraw(self, key: str) -> bool:
        return False

    def pause_s(self, chat_id: int, kind: CallKind = CallKind.LIGHT) -> float:
        paused = self.pauses if kind is not CallKind.MESSAGE else self.message_pauses
        return max(0.0, paused.get(chat_id, 0.0) - self.clock.monotonic())

    def times(self, method: str) -> list[float]:
        return [at for at, name, _ in self.calls if name == method]

    def _sendMessage(self, *, text: str, **_: Any) -> dict[str, Any]:  # noqa: N802 - as the platform says
        message_id = 500 + len(self.messages) + len(self.deleted)
        self.messages[message_id] = text
        return {"message_id": message_id}

    def _editMessageText(self, *, message_id: int, text: str, **_: Any) -> None:  # noqa: N802
        if message_id not in self.messages:
            raise RequestRefused(400, "Bad Request: message to edit not found")
        if self.messages[message_id] == text:
            raise NotModified(400, "Bad Request: message is not modified")
        self.messages[message_id] = text

    def _deleteMessage(self, *, message_id: int) -> None:  # noqa: N802
        if message_id not in self.messages:
            raise RequestRefused(400, "Bad Request: message to delete not found")
        del self.messages[message_id]
        self.deleted.append(message_id)

    def _sendMessageDraft(self, *, text: str, **_: Any) -> None:  # noqa: N802
        self.drafts.append(text)

    def _sendChatAction(self, **_: Any) -> None:  # noqa: N802
        self.typed_at.append(self.clock.monotonic())

    def _setMessageReaction(  # noqa: N802
        self, *, message_id: int, reaction: list[dict[str, str]]
    ) -> None:
        self.reactions.setdefault(message_id, []).append(
            "".join(each["emoji"] for each in reaction)
        )


class Fixture(StreamsFixture):
    """Its chats are a dictionary."""

    channel_name, conversation = "telegram", GROUP

    def __init__(self, database: Database, clock: LoopClock) -> None:
        super().__init__(database, clock, LIVE)
        self.platform = Platform(clock)
        self.start()

    def _streams(self) -> Streams:
        return Streams(self, self.platform)  # type: ignore[arg-type]  # a twin of what is used

    async def on_record(self) -> list[int]:
        """The ids that are stored; those that may still change negative."""
        rows = await self.sql("SELECT platform_id, trust FROM placeholders")
        return [int(row[0]) * (-1 if row[1] == "unsafe" else 1) for row in rows]

    def shown(self) -> str:
        """The one message that is there."""
        (text,) = self.platform.messages.values()
        return text


@pytest_asyncio.fixture
async def context(tmp_path: Path) -> AsyncIterator[Fixture]:
    async with virtual_store(tmp_path) as (database, clock):
        bench = Fixture(database, clock)
        yield bench
        await bench.close()


# -- drafts ----------------------------------------------------------------------------------------


async def test_in_a_private_chat_a_draft_grows_before_the_turn_has_ended(context: Fixture) -> None:
    await context.accept(ANN)
    await context.turn(ANN)
    await context.say("The first words", then_s=0.6)
    assert context.platform.drafts == ["The first words"]
    await context.say(" and **more** of them", then_s=5.0)
    assert context.platform.drafts == ["The first words", "The first words and more of them"]
    context.live.end("m1")
    await context.answer("The first words and more of them.")
    assert await context.streams.takeover("m1") is None
    await context.clock.sleep(60.0)
    assert len(context.platform.drafts) == 2
    assert context.platform.messages == {}
    numbers = {f["draft_id"] for _, name, f in context.platform.calls if name == "sendMessageDraft"}
    assert len(numbers) == 1


async def test_a_draft_is_renewed_before_it_fades(context: Fixture) -> None:
    await context.accept(ANN)
    await context.turn(ANN)
    await context.say("Thinking about a thing that takes a while", then_s=100.0)
    at = context.platform.times("sendMessageDraft")
    assert len(at) >= 4
    assert max(later - earlier for earlier, later in itertools.pairwise(at)) < 30.0


@pytest.mark.parametrize("code", [400, 404])
async def test_where_drafts_are_refused_a_message_is_edited(context: Fixture, code: int) -> None:
    await context.accept(ANN)
    context.platform.trouble["sendMessageDraft"] = [RequestRefused(code, "no drafts")] * 9
    await context.turn(ANN)
    await context.say("The first words of many", then_s=1.0)
    assert context.shown() == "The first words of many …"
    await context.say(", and then some", then_s=5.0)
    assert context.shown() == "The first words of many, and then some …"
    assert len(context.platform.times("sendMessageDraft")) == 1


async def test_a_draft_that_hangs_delays_the_answer_by_a_moment_only(context: Fixture) -> None:
    await context.accept(ANN)
    never = asyncio.Event()
    context.platform.trouble["sendMessageDraft"] = [never.wait]  # type: ignore[list-item]
    await context.turn(ANN)
    await context.say("The first words of many", then_s=1.0)
    began = context.clock.monotonic()
    assert await context.streams.takeover("m1") is None
    assert context.clock.monotonic() - began < 0.5


# -- edits -----------------------------------------------------------------------------------------


async def test_what_is_delivered_in_another_way_leaves_no_half_answer_behind(
    context: Fixture,
) -> None:
    await context.accept()
    await context.turn()
    await context.say("The first words of many", then_s=1.0)
    context.live.end("m1")
    await context.answer("something", "delivered", "9999")
    await context.clock.sleep(15.0)
    assert context.platform.messages == {}
    assert await context.on_record() == []


async def test_an_edit_under_way_never_lands_on_the_answer(context: Fixture) -> None:
    await context.accept()
    await context.turn()
    await context.say("The first words of many", then_s=1.0)
    slow = asyncio.Event()
    context.platform.trouble["editMessageText"] = [slow.wait]  # type: ignore[list-item]
    await context.say(", and then some", then_s=5.0)
    context.live.end("m1")
    await context.answer("the whole answer")
    began = context.clock.monotonic()
    assert await context.streams.takeover("m1") is None, "it is not known when the edit lands"
    assert context.clock.monotonic() - began <= 1.1
    await context.settle("delivered", "9999")
    slow.set()
    await context.clock.sleep(15.0)
    assert context.platform.messages == {}
    assert await context.on_record() == []


async def test_after_an_edit_of_unknown_fate_the_answer_goes_as_a_new_message(
    context: Fixture,
) -> None:
    await context.accept()
    await context.turn()
    await context.say("The first words of many", then_s=1.0)
    context.platform.trouble["editMessageText"] = [OutcomeUnknown("cut")]
    await context.say(", and then some", then_s=5.0)
    assert await context.streams.takeover("m1") is None


async def test_a_placeholder_whose_fate_is_unknown_is_not_tried_again(context: Fixture) -> None:
    await context.accept()
    context.platform.late["sendMessage"] = [OutcomeUnknown("cut")]
    await context.turn()
    await context.say("The first words of many", then_s=30.0)
    assert len(context.platform.times("sendMessage")) == 1
    assert await context.streams.takeover("m1") is None


async def test_a_message_that_a_person_deleted_is_not_written_again(context: Fixture) -> None:
    await context.accept()
    await context.turn()
    await context.say("The first words of many", then_s=1.0)
    context.platform.messages.clear()
    await context.say(", and then some", then_s=10.0)
    await context.say(", and more", then_s=10.0)
    assert len(context.platform.times("editMessageText")) == 1
    assert await context.streams.takeover("m1") is None


async def test_a_long_answer_is_shown_by_its_newest_part(context: Fixture) -> None:
    await context.accept()
    await context.turn()
    for paragraph in range(60):
        await context.say(f"{paragraph} " + "word " * 50 + "\n\n", then_s=4.0)
        assert len(context.shown()) <= 4096
    await context.clock.sleep(20.0)
    assert context.shown().startswith("…\n\n")
    assert "59 word" in context.shown()


async def test_a_text_that_the_platform_refuses_is_shown_plain(context: Fixture) -> None:
    await context.accept()
    context.platform.trouble["sendMessage"] = [MarkupRefused(400, "can't parse entities")]
    await context.turn()
    await context.say("Some **bold** words of many", then_s=1.0)
    assert context.shown() == "Some bold words of many …"
    assert "entities" not in context.platform.calls[-1][2]


# -- the end ---------------------------------------------------------------------------------------


async def test_a_turn_that_failed_says_so_where_it_was_shown(context: Fixture) -> None:
    await context.accept()
    await context.turn()
    await context.say("The first words of many", then_s=1.0)
    context.live.end("m1")
    await context.become("done", "failed")
    await context.clock.sleep(1.0)
    assert context.shown() == "The first words of many\n\n⚠ interrupted"


async def test_a_turn_tried_again_goes_on_in_the_same_message(context: Fixture) -> None:
    await context.accept()
    await context.turn()
    await context.say("The first attempt has failed", then_s=1.0)
    context.live.end("m1")
    await context.become("queued")
    await context.clock.sleep(30.0)
    assert len(context.platform.messages) == 1
    await context.become("leased")
    await context.turn()
    await context.say("The second attempt goes well", then_s=5.0)
    assert context.shown() == "The second attempt goes well …"


async def test_a_silent_end_removes_the_stream(context: Fixture) -> None:
    await context.accept()
    await context.turn()
    await context.say("The first words of many", then_s=1.0)
    context.live.end("m1")
    await context.become("done", "ok")
    await context.clock.sleep(1.0)
    assert context.platform.messages == {}


async def test_what_could_not_be_deleted_at_once_is_deleted_later(context: Fixture) -> None:
    await context.accept()
    await context.turn()
    await context.say("The first words of many", then_s=1.0)
    context.platform.trouble["deleteMessage"] = [
        RateLimited(20.0),
        NotSent("down"),
        OutcomeUnknown("cut"),
    ]
    context.live.end("m1")
    await context.become("done", "ok")
    await context.clock.sleep(120.0)
    assert context.platform.messages == {}
    assert await context.on_record() == []


# -- after a crash ---------------------------------------------------------------------------------


async def test_a_crash_does_not_make_an_edit_of_unknown_fate_forgotten(context: Fixture) -> None:
    await context.accept()
    await context.turn()
    await context.say("The first words of many", then_s=1.0)
    context.platform.trouble["editMessageText"] = [OutcomeUnknown("cut")]
    await context.say(", and then some", then_s=5.0)
    await context.crash()
    await context.clock.sleep(60.0)
    assert await context.streams.takeover("m1") is None


@pytest.mark.parametrize("state", ["cancelled", "dead", "parked"])
async def test_after_a_crash_a_stream_without_an_answer_is_removed(
    context: Fixture, state: str
) -> None:
    await context.accept()
    await context.turn()
    await context.say("The first words of many", then_s=1.0)
    await context.crash()
    await context.become(state)
    await context.clock.sleep(15.0)
    assert context.platform.messages == {}
    assert await context.on_record() == []


async def test_after_a_crash_in_the_delivery_the_answer_is_put_in_place(context: Fixture) -> None:
    await context.accept()
    await context.turn()
    await context.say("The first words of many", then_s=1.0)
    context.live.end("m1")
    await context.answer("The first words of many, and the **last**.")
    await context.crash()
    await context.settle("unknown")
    await context.clock.sleep(15.0)
    assert context.shown() == "The first words of many, and the last."
    assert await context.on_record() == []


async def test_an_end_gets_a_placeholder_being_born_on_record(context: Fixture) -> None:
    await context.accept()
    slow = asyncio.Event()
    context.platform.late["sendMessage"] = [slow.wait]  # type: ignore[list-item]
    await context.turn()
    await context.say("The first words of many", then_s=1.0)
    assert await context.on_record() == []
    context.owner.spawn(context.drain(), name="drain:test")
    await context.clock.sleep(0.3)
    slow.set()
    await context.clock.sleep(0.3)
    assert await context.on_record() == [500]


async def test_an_end_that_is_cut_short_leaves_no_stream_behind(context: Fixture) -> None:
    await context.accept(ANN)
    never = asyncio.Event()
    context.platform.trouble["sendMessageDraft"] = [never.wait]  # type: ignore[list-item]
    await context.turn(ANN)
    await context.say("The first words of many", then_s=1.0)
    context.life.cancel()
    await context.clock.sleep(0.3)  # it waits for the request under way
    context.life.cancel()
    await asyncio.wait({context.life})
    names = {task.get_name().partition(":")[0] for task in asyncio.all_tasks()}
    assert not names & {"stream", "typing"}
    context.start()


# -- pressure --------------------------------------------------------------------------------------


async def test_a_pause_asked_for_is_kept_and_other_chats_are_not_touched(context: Fixture) -> None:
    await context.accept()
    context.platform.trouble["sendMessage"] = [RateLimited(30.0)]
    await context.turn()
    for _ in range(20):
        await context.say("more and more of the words ", then_s=1.0)
    assert len(context.platform.times("sendMessage")) == 1
    await context.clock.sleep(20.0)
    assert len(context.platform.times("sendMessage")) == 2
    assert "more" in context.shown()


async def test_while_the_chat_is_paused_nothing_is_tried(context: Fixture) -> None:
    await context.accept()
    context.platform.pauses[int(GROUP)] = context.clock.monotonic() + 60.0
    await context.turn()
    await context.say("The first words of many", then_s=50.0)
    assert context.platform.calls == []
    await context.clock.sleep(30.0)
    assert context.shown() == "The first words of many …"


@pytest.mark.parametrize("also_messages", [False, True])
async def test_an_answer_does_not_wait_where_edits_alone_have_to(
    context: Fixture, also_messages: bool
) -> None:
    await context.accept()
    await context.turn()
    await context.say("The first words of many", then_s=1.0)
    ((message_id, _),) = context.platform.messages.items()
    context.platform.pauses[int(GROUP)] = context.clock.monotonic() + 60.0
    if also_messages:
        context.platform.message_pauses = context.platform.pauses
    context.live.end("m1")
    await context.answer("the whole answer")
    assert await context.streams.takeover("m1") == (str(message_id) if also_messages else None)
    if not also_messages:
        assert await context.on_record() == [-message_id], "not even a restart edits it again"
        await context.settle("delivered", "9999")
        await context.clock.sleep(15.0)
        assert context.platform.messages == {}


async def test_what_gives_way_is_shown_a_little_later(context: Fixture) -> None:
    await context.accept()
    context.platform.trouble["sendMessage"] = [
        LowPriorityDropped("pressure"),
        LowPriorityDropped("pressure"),
    ]
    await context.turn()
    await context.say("The first words of many", then_s=2.0)
    assert context.platform.messages == {}
    await context.clock.sleep(10.0)
    assert context.shown() == "The first words of many …"


@pytest.mark.parametrize("error", [ChatGone(403, "blocked"), RequestRefused(400, "no")])
async def test_a_chat_that_can_not_be_written_to_is_left_alone(
    context: Fixture, error: Exception
) -> None:
    await context.accept()
    context.platform.trouble["sendMessage"] = [error]
    await context.turn()
    for _ in range(10):
        await context.say("The first words of many", then_s=5.0)
    assert len(context.platform.times("sendMessage")) == 1


async def test_a_platform_that_is_down_is_tried_three_times(context: Fixture) -> None:
    await context.accept()
    context.platform.trouble["sendMessage"] = [NotSent("down")] * 9
    await context.turn()
    for _ in range(10):
        await context.say("The first words of many", then_s=5.0)
    assert len(context.platform.times("sendMessage")) == 3


# -- whose turn, and signs -------------------------------------------------------------------------


async def test_what_another_agent_works_for_a_chat_is_not_shown_by_this_bot(
    context: Fixture,
) -> None:
    await context.accept(deliver_agent="a_2")
    await context.turn()
    await context.say("The first words of many", then_s=20.0)
    assert context.platform.calls == []


async def test_what_is_answered_at_once_shows_no_typing_and_no_stream(context: Fixture) -> None:
    await context.accept()
    await context.turn()
    await context.say("Yes.")
    context.live.end("m1")
    await context.clock.sleep(30.0)
    assert context.platform.calls == []


async def test_typing_waits_while_the_chat_is_paused(context: Fixture) -> None:
    context.streaming = Streaming(mode="off")
    await context.accept()
    context.platform.pauses[int(GROUP)] = context.clock.monotonic() + 60.0
    await context.turn()
    await context.clock.sleep(50.0)
    assert context.platform.typed_at == []
    await context.clock.sleep(20.0)
    assert context.platform.typed_at


@pytest.mark.parametrize("is_late", [False, True])
async def test_what_is_answered_at_once_gets_no_eyes(context: Fixture, is_late: bool) -> None:
    await context.accept()
    if not is_late:
        await context.become("done", "ok")
    context.streams.accepted("m1", GROUP, "42")
    if is_late:
        await context.become("done", "ok")
    await context.clock.sleep(5.0)
    assert context.platform.calls == []


async def test_eyes_that_come_late_do_not_stay(context: Fixture) -> None:
    await context.accept()
    slow = asyncio.Event()
    context.platform.trouble["setMessageReaction"] = [slow.wait]  # type: ignore[list-item]
    context.streams.accepted("m1", GROUP, "42")
    await context.clock.sleep(1.0)
    await context.become("done", "ok")
    slow.set()
    await context.clock.sleep(1.0)
    assert context.platform.reactions == {42: ["👀", ""]}


async def test_eyes_left_by_a_crash_are_taken_off_in_the_end(context: Fixture) -> None:
    await context.accept()
    await context.sql(
        "INSERT INTO received (channel, bot_id, account, external_id, raw, state, chat_id,"
        " platform_id, message_id, at)"
        " VALUES ('telegram', 'b', 'b', '1.1', '{}', 'done', ?, '42', 'm1', 1)",
        GROUP,
    )
    context.streams.accepted("m1", GROUP, "42")
    await context.clock.sleep(5.0)
    await context.crash()
    await context.clock.sleep(1.0)
    await context.become("done", "ok")
    await context.clock.sleep(1.0)
    assert context.platform.reactions == {42: ["👀", ""]}


async def test_an_answer_that_comes_while_the_turn_still_runs_ends_the_stream(
    context: Fixture,
) -> None:
    await context.accept()
    await context.turn()
    await context.say("The first words of many", then_s=1.0)
    assert await context.streams.takeover("m1") == "500"
    await context.say(", and then some", then_s=30.0)
    assert context.shown() == "The first words of many …"
    context.live.end("m1")
    await context.answer("the whole answer", "delivered", "500")
    await context.clock.sleep(15.0)
    assert await context.on_record() == []


async def test_a_store_that_is_gone_stops_no_answer(context: Fixture) -> None:
    await context.accept()
    await context.database.close()
    await context.turn()
    await context.say("The first words of many", then_s=5.0)
    assert await context._streams().takeover("m1") is None
    assert context.platform.messages == {}


# -- whatever happens ------------------------------------------------------------------------------


class RandomFaults:
    """Random trouble, before or after the effect."""

    def __init__(self, context: Fixture, seed: int) -> None:
        self.bench = context
        self.random = random.Random(seed)
        self.orphans: set[int] = set()
        """Messages of which we can't have been told."""
        self.is_calm = False
        context.platform.send = self.send  # type: ignore[method-assign]  # the platform's door

    async def send(self, chat_id: int, method: str, **more: Any) -> Any:
        platform, dice = self.bench.platform, self.random
        more = {k: v for k, v in more.items() if k not in {"priority", "replaces", "timeout_s"}}
        droppable = more.pop("droppable", False)
        if not self.is_calm:
            if dice.random() < 0.3:
                await self.bench.clock.sleep(dice.choice([0.1, 1.5, 4.0]))
            if method == "editMessageText" and dice.random() < 0.15:
                self.bench.owner.spawn(self.later(more), name="late:test")
                raise OutcomeUnknown("cut, and applied all the same, later")
            if dice.random() < 0.15:
                raise dice.choice(
                    [RateLimited(dice.choice([1.0, 20.0])), NotSent("down"), OutcomeUnknown("5xx")]
                    + [LowPriorityDropped("pressure")] * droppable
                )
        known = set(platform.messages)
        result = getattr(platform, f"_{method}")(**more)
        born = set(platform.messages) - known
        self.orphans |= born
        if not self.is_calm:
            if dice.random() < 0.15:
                await self.bench.clock.sleep(dice.choice([0.1, 1.5, 4.0]))
            if dice.random() < 0.1:
                raise OutcomeUnknown("cut")
        self.orphans -= born
        return result

    async def crash(self) -> None:
        """The process dies; what the platform has just said may not be on record yet."""
        await self.bench.crash()
        on_record = await self.bench.on_record()
        unfinished = {k for k, text in self.bench.platform.messages.items() if text[-1] == "…"}
        self.orphans |= unfinished - set(on_record)

    async def later(self, edit: dict[str, Any]) -> None:
        await self.bench.clock.sleep(self.random.choice([0.5, 1.0, 2.5]))
        with suppress(RequestRefused):
            self.bench.platform._editMessageText(**edit)

    async def deliver(self, text: str) -> int:
        """What the outbox does with the answer; its own sends come through in the end."""
        platform = self.bench.platform
        while (streamed_id := await self.bench.streams.takeover("m1")) is not None:
            message_id = int(streamed_id)
            try:
                await self.send(int(GROUP), "editMessageText", message_id=message_id, text=text)
            except NotModified:
                return message_id
            except RequestRefused:
                break
            except (RateLimited, NotSent, OutcomeUnknown):
                await self.bench.clock.sleep(1.0)
            else:
                return message_id
        return int(platform._sendMessage(text=text)["message_id"])


@pytest.mark.parametrize("seed", range(60))
async def test_whatever_happens_the_answer_stands_there_once_and_nothing_else(
    context: Fixture, seed: int
) -> None:
    weather = RandomFaults(context, seed)
    dice = weather.random
    await context.accept()
    for attempt in range(dice.randint(1, 3)):
        if attempt:
            context.live.end("m1")
            await context.become(dice.choice(["queued", "parked"]))
            await context.clock.sleep(dice.choice([0.0, 0.3, 20.0]))
            await context.become("leased")
        await context.turn()
        for _ in range(dice.randint(1, 8)):
            await context.say("words and words ", then_s=dice.choice([0.0, 0.4, 3.0, 3.3]))
            if dice.random() < 0.08:
                await weather.crash()
                break
    context.live.end("m1")
    stopped, delivered = dice.random() < 0.3, 0
    if stopped:
        await context.become("cancelled")
    else:
        await context.answer("the whole answer")
        if dice.random() < 0.2:
            await weather.crash()
        delivered = await weather.deliver("the whole answer")
        await context.settle("delivered", str(delivered))
    await context.clock.sleep(dice.choice([0.0, 1.0, 400.0]))
    weather.is_calm = True
    await weather.crash()
    await context.clock.sleep(400.0)
    left = {k: text for k, text in context.platform.messages.items() if k not in weather.orphans}
    if stopped:
        assert all(text.endswith("⏹ stopped") for text in left.values())
        assert len(left) <= 1
    else:
        assert left == {delivered: "the whole answer"}
    assert await context.on_record() == []
