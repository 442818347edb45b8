"""The guard against engines that do everything wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress

import pytest

from agentsup.engines.failures import EngineCrash, ExtraMissing, ProviderRateLimited
from agentsup.engines.guard import open_guarded, rules
from agentsup.engines.guard.rules import CallRepeats, SegmentAccount, SegmentLimits, cut
from agentsup.kit import installation
from agentsup.model.engine import (
    EngineCaps,
    EngineDone,
    EngineEvent,
    EngineHost,
    EngineSession,
    EngineSpec,
    Segment,
    Suspended,
    TextDelta,
    ThinkingDelta,
    ToolStarted,
    Usage,
)
from agentsup.model.errors import EngineFailed, ExitRequested, StoreUnavailable
from tests.support.engine_host import MemoryHost, segment

Run = Callable[["Fake"], AsyncIterator[EngineEvent]]
SPEC = EngineSpec("fake")


class Fake:
    """An engine and its session in one; ``run_with`` is what a run does."""

    name = "fake"
    caps = EngineCaps()

    def __init__(self, run_with: Run, *, open_error: Exception | None = None) -> None:
        self._run_with = run_with
        self._open_error = open_error
        self.host: EngineHost = MemoryHost()
        self.is_closed = False
        self.release = asyncio.Event()

    async def open(self, spec: EngineSpec, host: EngineHost) -> EngineSession:
        if self._open_error is not None:
            raise self._open_error
        self.host = host
        return self

    def run(self, segment: Segment) -> AsyncIterator[EngineEvent]:
        return self._run_with(self)

    async def close(self) -> None:
        self.is_closed = True
        self.release.set()


async def collect(
    run_with: Run, *, limits: SegmentLimits | None = None, host: EngineHost | None = None
) -> list[EngineEvent]:
    fake = Fake(run_with)
    session = await open_guarded(fake, SPEC, host or MemoryHost(), limits=limits)
    try:
        async with aclosing(session.run(segment())) as run:
            return [event async for event in run]
    finally:
        await session.close()


def end_of(events: list[EngineEvent]) -> EngineDone:
    assert sum(isinstance(event, EngineDone | Suspended) for event in events) == 1
    end = events[-1]
    assert isinstance(end, EngineDone)
    return end


async def test_a_silent_end_is_a_failure_worth_a_retry() -> None:
    async def run(fake: Fake) -> AsyncIterator[EngineEvent]:
        yield TextDelta("half")

    end = end_of(await collect(run))
    assert (end.outcome, end.code, end.text) == ("failed", "engine_ended_silently", "half")
    assert not end.permanent


async def test_what_comes_after_the_end_is_ignored_and_the_generator_closed() -> None:
    closed = asyncio.Event()

    async def run(fake: Fake) -> AsyncIterator[EngineEvent]:
        try:
            yield EngineDone("ok", text="the answer")
            yield TextDelta("more")
            yield EngineDone("failed")
        finally:
            closed.set()

    events = await collect(run)
    assert events == [EngineDone("ok", text="the answer")]
    assert closed.is_set()


async def test_a_cleanup_after_the_end_is_given_time() -> None:
    steps: list[str] = []

    async def run(fake: Fake) -> AsyncIterator[EngineEvent]:
        try:
            yield EngineDone("ok", text="x")
        finally:
            await asyncio.sleep(0.02)
            steps.append("cleaned up")

    await collect(run)
    assert steps == ["cleaned up"]


async def test_an_error_in_the_cleanup_does_not_undo_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run(fake: Fake) -> AsyncIterator[EngineEvent]:
        try:
            yield EngineDone("ok", text="x")
        finally:
            raise LookupError("late")

    assert end_of(await collect(run)).outcome == "ok"
    assert "after its end" in caplog.text


async def test_an_end_without_text_gets_the_deltas() -> None:
    async def run(fake: Fake) -> AsyncIterator[EngineEvent]:
        yield TextDelta("one ")
        yield ThinkingDelta("hm")
        yield TextDelta("two")
        yield EngineDone("ok")

    assert end_of(await collect(run)).text == "one two"


async def test_an_ordinary_exception_fails_the_turn_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run(fake: Fake) -> AsyncIterator[EngineEvent]:
        yield TextDelta("well ")
        raise ZeroDivisionError("oops")

    end = end_of(await collect(run))
    assert (end.outcome, end.code, end.text) == ("failed", "engine_error", "well ")
    assert "ZeroDivisionError" in end.error
    assert "broke" in caplog.text


async def test_a_run_that_raises_before_it_yields_fails_the_turn() -> None:
    def run(fake: Fake) -> AsyncIterator[EngineEvent]:
        raise TypeError("not even a generator")

    assert end_of(await collect(run)).code == "engine_error"


async def test_an_engine_failure_keeps_its_code_class_and_wish() -> None:
    async def run(fake: Fake) -> AsyncIterator[EngineEvent]:
        yield Usage(3, 4)
        raise ProviderRateLimited("slow down", retry_after_s=7.0)

    events = await collect(run)
    end = end_of(events)
    assert Usage(3, 4) in events
    assert (end.code, end.permanent, end.error) == ("rate_limited", False, "slow down")
    assert end.retry_after_s == 7.0


@pytest.mark.parametrize(
    "error", [EngineCrash("boom"), ExitRequested(42), StoreUnavailable("disk full")]
)
async def test_what_the_stack_must_see_escapes(error: Exception) -> None:
    async def run(fake: Fake) -> AsyncIterator[EngineEvent]:
        yield TextDelta("x")
        raise error

    with pytest.raises(type(error)):
        await collect(run)


async def test_an_engine_that_swallows_a_fatal_error_of_the_host_is_ended_all_the_same() -> None:
    async def full(args: object) -> str:
        raise StoreUnavailable("disk full")

    async def run(fake: Fake) -> AsyncIterator[EngineEvent]:
        try:
            await fake.host.call("full", {})
        except StoreUnavailable:
            yield TextDelta("never mind")
        yield EngineDone("ok", text="all is well")

    host = MemoryHost({"full": full}, fatal=(StoreUnavailable,))
    with pytest.raises(StoreUnavailable):
        await collect(run, host=host)


async def test_an_engine_that_cancels_itself_ends_cancelled() -> None:
    async def run(fake: Fake) -> AsyncIterator[EngineEvent]:
        yield TextDelta("x")
        raise asyncio.CancelledError

    assert end_of(await collect(run)).outcome == "cancelled"


@pytest.mark.virtual
async def test_an_engine_that_ignores_cancellation_is_left_behind_and_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run(fake: Fake) -> AsyncIterator[EngineEvent]:
        yield TextDelta("x")
        while not fake.release.is_set():
            try:
                await fake.release.wait()
            except asyncio.CancelledError:
                continue
        yield EngineDone("ok", text="too late")

    fake = Fake(run)
    session = await open_guarded(fake, SPEC, MemoryHost(), limits=SegmentLimits(cancel_s=0.5))
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with aclosing(session.run(segment())) as running:
        await anext(running)
    assert loop.time() - began == pytest.approx(0.5, abs=0.01)
    assert "engine fake did not stop in time and was left behind: message msg_1" in caplog.text
    await session.close()


@pytest.mark.virtual
async def test_who_ignored_each_request_is_ended_where_it_listens_again() -> None:
    """It comes to itself when nothing waits for it any more, and must not work on."""
    ended = asyncio.Event()

    async def run(fake: Fake) -> AsyncIterator[EngineEvent]:
        yield TextDelta("begun")
        until = asyncio.get_running_loop().time() + 1.2
        while (left_s := until - asyncio.get_running_loop().time()) > 0:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(left_s)
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()
        yield EngineDone("ok", text="too late")

    session = await open_guarded(Fake(run), SPEC, MemoryHost(), limits=SegmentLimits(cancel_s=0.5))
    async with aclosing(session.run(segment())) as running:
        await anext(running)
    await session.close()
    async with asyncio.timeout(1):
        await ended.wait()


@pytest.mark.virtual
async def test_idle_and_hard_deadlines_are_exact() -> None:
    async def run(fake: Fake) -> AsyncIterator[EngineEvent]:
        for _ in range(10):
            yield TextDelta(".")
            await asyncio.sleep(20)

    loop = asyncio.get_running_loop()
    began = loop.time()
    assert end_of(await collect(run, limits=SegmentLimits(idle_s=15))).code == "turn_timed_out"
    assert loop.time() - began == pytest.approx(15, abs=0.1)
    began = loop.time()
    end = end_of(await collect(run, limits=SegmentLimits(idle_s=30, hard_s=70)))
    assert loop.time() - began == pytest.approx(70, abs=0.1)
    assert end.text == "...."


class Place:
    """A turn's slot that is given back and had again. Implements ``ReleasableSlot``."""

    def __init__(self) -> None:
        self.watchers: list[tuple[Callable[[], object], Callable[[], object]]] = []

    @contextmanager
    def watched(self, rest: Callable[[], object], wake: Callable[[], object]) -> Iterator[None]:
        self.watchers.append((rest, wake))
        yield
        self.watchers.remove((rest, wake))

    @asynccontextmanager
    async def released(self) -> AsyncIterator[None]:
        for rest, _ in self.watchers:
            rest()
        yield
        for _, wake in self.watchers:
            wake()

    def suspend(self) -> bool:
        return False


@pytest.mark.virtual
async def test_time_without_a_slot_is_not_the_turns() -> None:
    place = Place()

    async def asks(args: dict[str, object]) -> str:
        async with place.released():
            await asyncio.sleep(1000)
        return "heard"

    async def run(fake: Fake) -> AsyncIterator[EngineEvent]:
        await asyncio.sleep(60)
        await fake.host.call("ask_agent", {})
        yield TextDelta("heard")
        await asyncio.sleep(60)
        yield EngineDone("ok", text="too late")

    loop = asyncio.get_running_loop()
    began = loop.time()
    host = MemoryHost({"ask_agent": asks}, slot=place)
    session = await open_guarded(Fake(run), SPEC, host, limits=SegmentLimits(idle_s=90, hard_s=100))
    async with aclosing(session.run(segment())) as running:
        end = end_of([event async for event in running])
    await session.close()
    assert (end.code, end.text) == ("turn_timed_out", "heard")
    assert loop.time() - began == pytest.approx(1100, abs=0.1)
    assert place.watchers == []


@pytest.mark.virtual
async def test_a_tool_of_the_engine_itself_that_is_open_is_not_idleness() -> None:
    async def run(fake: Fake) -> AsyncIterator[EngineEvent]:
        yield ToolStarted("shell", {"command": "make"})
        await asyncio.sleep(100)
        yield EngineDone("ok", text="made")

    assert end_of(await collect(run, limits=SegmentLimits(idle_s=30))).text == "made"


async def test_usage_that_was_on_its_way_at_a_deadline_is_not_lost() -> None:
    async def run(fake: Fake) -> AsyncIterator[EngineEvent]:
        for _ in range(5):
            yield ToolStarted("same", {})
        yield Usage(1, 2)
        await fake.release.wait()

    events = await collect(run)
    assert end_of(events).code == "loop_detected"
    assert Usage(1, 2) in events


async def test_an_endless_answer_is_stopped() -> None:
    async def run(fake: Fake) -> AsyncIterator[EngineEvent]:
        while True:
            yield TextDelta("x" * 100)

    end = end_of(await collect(run, limits=SegmentLimits(max_answer_bytes=1000)))
    assert end.outcome == "ok"
    assert end.text.startswith("x" * 1000 + "\n[The answer was cut off")


async def test_an_engine_that_can_not_be_opened_is_an_engine_failure() -> None:
    async def run(fake: Fake) -> AsyncIterator[EngineEvent]:
        yield EngineDone("ok")

    with pytest.raises(EngineFailed, match="can't be opened"):
        await open_guarded(Fake(run, open_error=OSError("no")), SPEC, MemoryHost())
    with pytest.raises(ProviderRateLimited):
        await open_guarded(Fake(run, open_error=ProviderRateLimited("no")), SPEC, MemoryHost())


async def test_a_session_runs_several_segments() -> None:
    async def run(fake: Fake) -> AsyncIterator[EngineEvent]:
        yield EngineDone("ok", text="x")

    fake = Fake(run)
    session = await open_guarded(fake, SPEC, MemoryHost())
    for _ in range(3):
        session.cancel()  # an old cancel does not reach a later run
        events = [event async for event in session.run(segment())]
        assert events == [EngineDone("ok", text="x")]
    await session.close()
    assert fake.is_closed


def test_repeats_count_only_in_a_row_and_whatever_the_order_of_keys() -> None:
    repeats = CallRepeats()
    assert repeats.add("a", {"x": 1, "y": 2}) == 1
    assert repeats.add("a", {"y": 2, "x": 1}) == 2
    assert repeats.add("b", {}) == 1
    assert repeats.add("a", {"x": 1, "y": 2}) == 1


@pytest.mark.parametrize("keep", range(8))
def test_cut_never_splits_a_character(keep: int) -> None:
    text = cut("aé日b", keep, 99)
    head = text.partition("\n[")[0]
    assert "aé日b".startswith(head)
    assert len(head.encode()) <= keep
    assert (text == "aé日b") == (keep >= 7)


def test_deltas_beyond_the_limit_are_dropped_once_it_was_said() -> None:
    account = SegmentAccount(SegmentLimits(max_answer_bytes=10))
    first = account.note(TextDelta("0123456789ab"))
    assert isinstance(first, TextDelta)
    assert first.text.startswith("0123456789\n[")
    assert account.note(TextDelta("cd")) is None
    end = account.end(EngineDone("ok"))
    assert isinstance(end, EngineDone)
    assert end.text == first.text


def test_an_installation_that_changed_is_named_where_it_breaks_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = "the installation changed"
    monkeypatch.setattr(installation, "change", lambda: told)
    missing = ExtraMissing.of("llm", "llm", ImportError("gone", name="pydantic_ai"))
    assert told in missing.message
    assert told in rules.crash(AttributeError("odd"), "").error
