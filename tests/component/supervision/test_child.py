"""One child through its lives, in virtual time."""

import asyncio
import logging
from dataclasses import replace
from typing import Any

import pytest

from agentsup.kit.tasks import TaskOwner
from agentsup.model.errors import ExitRequested
from agentsup.model.health import AgentState
from agentsup.supervision.policy import EndKind, Restart, RestartPolicy
from agentsup.supervision.spec import ChildContext, Grace
from tests.component.supervision.lives import Bench, after, asks

pytestmark = pytest.mark.virtual

S = AgentState
BOOM = LookupError("boom")


async def test_a_life_from_start_to_stop(bench: Bench) -> None:
    child = bench.child(bench.obeys)
    assert child.state is S.STOPPED
    child.start()
    assert await child.until(S.RUNNING) is S.RUNNING
    assert child.status.running_since_at is not None
    await child.stop()
    assert bench.seen() == [S.STOPPED, S.STARTING, S.RUNNING, S.STOPPING, S.STOPPED]
    assert child.status.last_end is not None
    assert child.status.last_end.wanted


async def test_crashes_back_off_and_give_up(bench: Bench) -> None:
    child = bench.child(after(2, BOOM))
    child.start()
    began = bench.now()
    await child.until(S.FAILED)
    assert bench.now() - began == pytest.approx(6 * 2 + 1 + 2 + 4 + 8 + 16)
    assert child.status.life == 6
    assert "gave up after 5 restarts: LookupError: boom" in child.status.reason
    assert bench.seen().count(S.RUNNING) == 6


async def test_the_next_retry_is_told(bench: Bench) -> None:
    child = bench.child(after(2, BOOM))
    child.start()
    await child.until(S.BACKOFF)
    while child.status.next_retry_at is None:
        await asyncio.sleep(0)
    assert child.status.next_retry_at - bench.clock.now_ms() == 1000
    assert child.status.restarts_in_window == 1
    await child.until(S.RUNNING)
    assert child.status.next_retry_at is None


async def test_failed_is_left_by_an_act_with_a_clean_slate(bench: Bench) -> None:
    child = bench.child(after(2, BOOM))
    child.start()
    await child.until(S.FAILED)
    await asyncio.sleep(3600)
    assert bench.seen()[-1] is S.FAILED
    child.start()
    await child.until(S.RUNNING)
    assert child.status.life == 7
    await child.until(S.FAILED)
    assert child.status.life == 12
    await child.stop()
    assert child.state is S.STOPPED


async def test_a_changed_spec_leaves_failed(bench: Bench) -> None:
    child = bench.child(after(2, BOOM))
    child.start()
    await child.until(S.FAILED)
    child.replace(child.spec)
    await asyncio.sleep(10)
    assert child.state is S.FAILED
    child.replace(replace(child.spec, factory=bench.obeys))
    assert await child.until(S.RUNNING, S.FAILED) is S.RUNNING


async def test_dying_before_ready_is_a_start_failure(bench: Bench) -> None:
    child = bench.child(after(1, BOOM, is_ready=False))
    child.start()
    await child.until(S.BACKOFF)
    await child.until(S.STARTING)
    end = child.status.last_end
    assert end is not None
    assert end.kind is EndKind.START_FAILED
    assert end.uptime_s == 0
    assert "before it was ready: LookupError: boom" in end.reason
    assert await child.until(S.RUNNING, S.FAILED) is S.FAILED


async def test_a_start_that_hangs_fails_in_the_end(bench: Bench) -> None:
    child = bench.child(after(10_000, None, is_ready=False), ready_timeout_s=120)
    child.start()
    began = bench.now()
    await child.until(S.FAILED)
    assert child.status.life == 6
    assert bench.now() - began == pytest.approx(6 * 120 + 31)
    assert "not ready within 120 s" in child.status.reason


async def test_a_start_that_swallows_cancel_is_abandoned_and_tried_again(bench: Bench) -> None:
    lives: list[int] = []

    async def hangs_once(ctx: ChildContext) -> None:
        lives.append(ctx.life)
        if ctx.life > 1:
            await bench.obeys(ctx)
        await bench.swallows_cancel(_deaf(ctx))

    child = bench.child(hangs_once, ready_timeout_s=10, grace=Grace(30, 5, 2))
    child.start()
    began = bench.now()
    assert await child.until(S.RUNNING, S.DEGRADED) is S.DEGRADED
    assert bench.now() - began == pytest.approx(10 + 5 + 2 + 1)
    assert child.status.abandoned == 1
    assert lives == [1, 2]
    bench.release.set()
    await child.until(S.RUNNING)
    assert child.status.abandoned == 0


def _deaf(ctx: ChildContext) -> ChildContext:
    """The same life for code that says ready too early."""
    return ChildContext(
        ctx.child_id, ctx.life, ctx.scope, on_ready=lambda: None, on_degraded=lambda _reason: None
    )


async def test_an_abandoned_life_has_no_say(bench: Bench) -> None:
    contexts: list[ChildContext] = []

    async def life(ctx: ChildContext) -> None:
        contexts.append(ctx)
        await (bench.swallows_cancel(ctx) if ctx.life == 1 else asyncio.sleep(100))

    child = bench.child(life, grace=Grace(0, 1, 1))
    child.start()
    await child.until(S.RUNNING)
    await child.restart()
    await child.until(S.STARTING)
    contexts[0].ready()
    contexts[0].degraded("old news")
    assert child.state is S.STARTING


# -- ends by request -------------------------------------------------------------------------------


async def test_42_rebuilds_at_once_and_counts_as_nothing(bench: Bench) -> None:
    child = bench.child(asks(42, 7))
    child.start()
    await asyncio.sleep(7 * 40 + 1)
    assert child.state is S.RUNNING
    assert child.status.life == 41
    assert child.status.restarts_in_window == 0
    assert S.BACKOFF not in bench.seen()


async def test_a_storm_of_42_fails(bench: Bench) -> None:
    child = bench.child(asks(42, 0.1))
    child.start()
    await child.until(S.FAILED)
    assert child.status.life == 16


@pytest.mark.parametrize("code, state", [(0, S.STOPPED), (3, S.FAILED), (42, S.STOPPED)])
async def test_the_significant_childs_code_is_the_daemons(
    bench: Bench, code: int, state: AgentState
) -> None:
    child = bench.child(asks(code), significant=True)
    child.start()
    await child.until(S.STOPPED, S.FAILED)
    assert child.state is state
    assert bench.exits == [code]


async def test_a_crash_of_the_significant_child_is_1(bench: Bench) -> None:
    child = bench.child(after(1, BOOM), significant=True)
    child.start()
    await child.until(S.FAILED)
    assert bench.exits == [1]


async def test_sys_exit_in_a_child_does_not_end_the_daemon(bench: Bench) -> None:
    async def calls_exit(ctx: ChildContext) -> None:
        ctx.ready()
        raise SystemExit(42)

    child = bench.child(calls_exit)
    child.start()
    await child.until(S.BACKOFF)
    assert "SystemExit" in child.status.reason


async def test_a_cancel_from_within_is_a_crash(bench: Bench) -> None:
    async def cancels_itself(ctx: ChildContext) -> None:
        ctx.ready()
        await asyncio.sleep(1)
        raise asyncio.CancelledError

    child = bench.child(cancels_itself)
    child.start()
    await child.until(S.BACKOFF)
    assert "from within" in child.status.reason


@pytest.mark.parametrize(
    "restart, expected",
    [
        (Restart.PERMANENT, S.BACKOFF),
        (Restart.TRANSIENT, S.STOPPED),
        (Restart.TEMPORARY, S.STOPPED),
    ],
)
async def test_a_normal_end(bench: Bench, restart: Restart, expected: AgentState) -> None:
    child = bench.child(after(1, None), restart=restart)
    child.start()
    await child.until(S.RUNNING)
    assert await child.until(S.BACKOFF, S.STOPPED, S.FAILED) is expected


# -- the stop protocol -----------------------------------------------------------------------------

GRACE = Grace(drain_s=30, cancel_s=5, kill_s=2)
SHORT = Grace(drain_s=0, cancel_s=0.5, kill_s=0.5)


@pytest.mark.parametrize(
    "kind, grace, took_s, left",
    [
        ("obeys", GRACE, 0, 0),
        ("drains_slowly", GRACE, 20, 0),
        ("ignores_drain", GRACE, 30, 0),
        ("closes_slowly", GRACE, 33, 0),
        ("swallows_until_killed", GRACE, 35, 0),
        ("swallows_cancel", GRACE, 37, 1),
        ("obeys", SHORT, 0, 0),
        ("drains_slowly", SHORT, 0, 0),
        ("ignores_drain", SHORT, 0, 0),
        ("closes_slowly", SHORT, 0.5, 0),
        ("swallows_until_killed", SHORT, 0.5, 0),
        ("swallows_cancel", SHORT, 1, 1),
    ],
)
async def test_each_kind_is_stopped_within_its_bound(
    bench: Bench, kind: str, grace: Grace, took_s: float, left: int
) -> None:
    child = bench.child(getattr(bench, kind), grace=grace)
    child.start()
    await child.until(S.RUNNING)
    began = bench.now()
    await child.stop()
    assert bench.now() - began == pytest.approx(took_s, abs=1e-3)
    assert bench.now() - began <= grace.total_s + 1e-3
    assert child.state is S.STOPPED
    assert child.status.abandoned == left


async def test_an_abandoned_life_is_logged_with_its_place(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    child = bench.child(bench.swallows_cancel, grace=SHORT)
    child.start()
    await child.until(S.RUNNING)
    with caplog.at_level(logging.ERROR):
        await child.stop()
    assert "abandoned life 1 of child ada" in caplog.text
    assert "swallows_cancel" in caplog.text


async def test_a_second_stop_may_be_more_urgent(bench: Bench) -> None:
    child = bench.child(bench.swallows_cancel, grace=GRACE)
    child.start()
    await child.until(S.RUNNING)
    owner = TaskOwner("test")
    polite = owner.spawn(child.stop(), name="stop:polite")
    await asyncio.sleep(3)
    began = bench.now()
    await child.stop(SHORT)
    assert bench.now() - began == pytest.approx(1)
    await asyncio.wait({polite}, timeout=0.1)
    assert polite.done()


async def test_a_cancelled_stop_goes_on_without_its_caller(bench: Bench) -> None:
    child = bench.child(bench.drains_slowly)
    child.start()
    await child.until(S.RUNNING)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await child.stop()
    assert child.state is S.STOPPING
    await child.until(S.STOPPED)


async def test_a_start_during_a_stop_builds_it_again(bench: Bench) -> None:
    child = bench.child(bench.drains_slowly)
    child.start()
    await child.until(S.RUNNING)
    owner = TaskOwner("test")
    stopping = owner.spawn(child.stop(), name="stop:ada")
    await asyncio.sleep(5)
    child.start()
    await child.until(S.RUNNING)
    assert child.status.life == 2
    assert stopping.done()
    assert S.STOPPED not in bench.seen()[1:]


async def test_a_stop_before_the_first_step_starts_nothing(bench: Bench) -> None:
    child = bench.child(bench.obeys)
    child.start()
    async with asyncio.timeout(1):
        await child.stop()
    assert (child.state, child.status.life) == (S.STOPPED, 0)
    child.start()
    await child.until(S.RUNNING)


async def test_a_stop_while_starting_does_not_wait_for_ready(bench: Bench) -> None:
    child = bench.child(after(1000, None, is_ready=False))
    child.start()
    await child.until(S.STARTING)
    began = bench.now()
    await child.stop()
    assert bench.now() - began < 0.1


@pytest.mark.parametrize("turns", range(12))
async def test_a_stop_racing_42_settles_stopped(bench: Bench, turns: int) -> None:
    ask = asyncio.Event()

    async def life(ctx: ChildContext) -> None:
        async def close() -> None:
            await asyncio.sleep(0)

        ctx.scope.on_close("something", close)
        ctx.ready()
        await ask.wait()
        raise ExitRequested(42)

    child = bench.child(life)
    child.start()
    await child.until(S.RUNNING)
    ask.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    await child.stop()
    await asyncio.sleep(100)
    assert child.state is S.STOPPED


@pytest.mark.parametrize("act", ["stop", "start", "edit", "restart"])
async def test_back_off_is_interrupted(bench: Bench, act: str) -> None:
    policy = RestartPolicy(base_s=50, cap_s=50)
    child = bench.child(after(1, BOOM), policy=policy)
    child.start()
    await child.until(S.BACKOFF)
    await asyncio.sleep(10)
    assert bench.seen()[-1] is S.BACKOFF
    began = bench.now()
    if act == "stop":
        await child.stop()
        assert child.state is S.STOPPED
    elif act == "start":
        child.start()
        await child.until(S.RUNNING)
    elif act == "edit":
        child.replace(replace(child.spec, factory=bench.obeys))
        await child.until(S.RUNNING)
    else:
        await child.restart()
        await child.until(S.RUNNING)
    assert bench.now() - began < 0.1


async def test_an_edit_drains_and_rebuilds_with_the_new_spec(bench: Bench) -> None:
    child = bench.child(bench.drains_slowly)
    child.start()
    await child.until(S.RUNNING)
    child.replace(replace(child.spec, factory=bench.obeys))
    await child.until(S.STOPPING)
    began = bench.now()
    await child.until(S.RUNNING)
    assert bench.now() - began == pytest.approx(20)
    await child.stop()
    assert bench.now() - began == pytest.approx(20)
    child.replace(replace(child.spec, factory=bench.drains_slowly))
    await asyncio.sleep(5)
    assert child.state is S.STOPPED
    with pytest.raises(ValueError, match="cannot become"):
        child.replace(replace(child.spec, child_id="bob"))


async def test_a_crash_during_a_rebuild_is_no_failure_of_the_new(bench: Bench) -> None:
    child = bench.child(bench.ignores_drain, grace=SHORT)
    child.start()
    await child.until(S.RUNNING)
    for _ in range(20):
        await child.restart()
        await child.until(S.RUNNING)
    assert child.status.restarts_in_window == 0
    assert child.status.life == 21


# -- degraded, scope, listeners --------------------------------------------------------------------


async def test_degraded_comes_and_goes(bench: Bench) -> None:
    contexts: list[ChildContext] = []

    async def life(ctx: ChildContext) -> None:
        contexts.append(ctx)
        ctx.degraded("no channel yet")
        await bench.obeys(ctx)

    child = bench.child(life)
    child.start()
    assert await child.until(S.RUNNING, S.DEGRADED) is S.DEGRADED
    assert child.status.reason == "no channel yet"
    since = child.status.running_since_at
    contexts[0].degraded(None)
    assert child.state is S.RUNNING
    contexts[0].degraded("lost it")
    assert (child.state, child.status.reason) == (S.DEGRADED, "lost it")
    assert child.status.running_since_at == since


@pytest.mark.parametrize("end", ["crash", "stop", "abandon"])
async def test_what_a_life_opened_is_closed_whatever_its_end(bench: Bench, end: str) -> None:
    closed: list[str] = []

    def closing(name: str, delay_s: float = 0, error: Exception | None = None) -> Any:
        async def close() -> None:
            await asyncio.sleep(delay_s)
            closed.append(name)
            if error is not None:
                raise error

        return close

    async def life(ctx: ChildContext) -> None:
        ctx.scope.on_close("first", closing("first"))
        ctx.scope.on_close("hangs", closing("hangs", 10_000))
        ctx.scope.on_close("fails", closing("fails", 1, BOOM))
        ctx.scope.on_kill("group", lambda: closed.append("killed"))
        forget = ctx.scope.on_kill("done already", lambda: closed.append("never"))
        forget()
        forget()
        ctx.scope.on_close("last", closing("last"))
        ctx.ready()
        if end == "crash":
            raise LookupError("boom")
        await bench.swallows_cancel(ctx) if end == "abandon" else await bench.obeys(ctx)

    child = bench.child(life, grace=Grace(1, 1, 2))
    child.start()
    await child.until(S.RUNNING)
    began = bench.now()
    if end == "crash":
        await child.until(S.STARTING)
        await child.stop()
    else:
        await child.stop()
    assert closed[:4] == ["killed", "last", "fails", "first"]
    assert "hangs" not in closed
    assert bench.now() - began < 12


async def test_listeners_hear_in_order_and_cannot_hurt(bench: Bench) -> None:
    heard: list[AgentState] = []

    def broken(_status: object) -> None:
        raise LookupError("a listener's bug")

    bench.board.listen(broken)
    forget = bench.board.listen(lambda status: heard.append(status.state))
    child = bench.child(bench.obeys)
    child.start()
    await child.until(S.RUNNING)
    forget()
    await child.stop()
    assert list(dict.fromkeys(heard)) == [S.STOPPED, S.STARTING, S.RUNNING]
    assert [status.state for status in bench.board.history("ada")][-1] is S.STOPPED
    assert bench.board.statuses["ada"] == child.status
    for _ in range(100):
        child.start()
        await child.until(S.RUNNING)
        await child.stop()
    assert len(bench.board.history("ada")) == 50


async def test_a_defect_in_supervision_fails_the_child_loudly(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    child = bench.child(after(1, BOOM))

    def broken(_end: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(child, "_decide", broken)
    child.start()
    async with asyncio.timeout(60):
        await child.until(S.FAILED)
    assert "a defect" in child.status.reason
    assert "supervise:ada" in caplog.text
    monkeypatch.undo()
    child.start()
    await child.until(S.RUNNING)
