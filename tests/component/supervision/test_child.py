"""One child through its lives, in virtual time."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest

from agentsup.kit.tasks import TaskOwner
from agentsup.model.errors import ExitRequested
from agentsup.model.health import AgentState
from agentsup.supervision import ChildContext, EndKind, Grace, Restart, RestartPolicy
from tests.component.supervision.lives import SupervisorFixture, after, asks

pytestmark = pytest.mark.virtual

S = AgentState
BOOM = LookupError("boom")


async def test_a_life_from_start_to_stop(context: SupervisorFixture) -> None:
    child = context.child(context.obeys)
    assert child.state is S.STOPPED
    child.start()
    assert await child.until(S.RUNNING) is S.RUNNING
    assert child.status.running_since_at is not None
    await child.stop()
    assert context.seen() == [S.STOPPED, S.STARTING, S.RUNNING, S.STOPPING, S.STOPPED]
    assert child.status.last_end is not None
    assert child.status.last_end.wanted


async def test_crashes_back_off_and_give_up(context: SupervisorFixture) -> None:
    child = context.child(after(2, BOOM))
    child.start()
    began = context.now()
    await child.until(S.FAILED)
    assert context.now() - began == pytest.approx(6 * 2 + 1 + 2 + 4 + 8 + 16)
    assert child.status.life == 6
    assert "gave up after 5 restarts: LookupError: boom" in child.status.reason
    assert context.seen().count(S.RUNNING) == 6


async def test_the_next_retry_is_told(context: SupervisorFixture) -> None:
    child = context.child(after(2, BOOM))
    child.start()
    await child.until(S.BACKOFF)
    while child.status.next_retry_at is None:
        await asyncio.sleep(0)
    assert child.status.next_retry_at - context.clock.now_ms() == 1000
    assert child.restarts_in_window == 1
    await child.until(S.RUNNING)
    assert child.status.next_retry_at is None


async def test_failed_is_left_by_an_act_with_a_clean_slate(context: SupervisorFixture) -> None:
    child = context.child(after(2, BOOM))
    child.start()
    await child.until(S.FAILED)
    await asyncio.sleep(3600)
    assert context.seen()[-1] is S.FAILED
    child.start()
    await child.until(S.RUNNING)
    assert child.status.life == 7
    await child.until(S.FAILED)
    assert child.status.life == 12
    await child.stop()
    assert child.state is S.STOPPED


async def test_a_changed_spec_leaves_failed(context: SupervisorFixture) -> None:
    child = context.child(after(2, BOOM))
    child.start()
    await child.until(S.FAILED)
    child.replace(child.spec)
    await asyncio.sleep(10)
    assert child.state is S.FAILED
    child.replace(replace(child.spec, factory=context.obeys))
    assert await child.until(S.RUNNING, S.FAILED) is S.RUNNING


async def test_dying_before_ready_is_a_start_failure(context: SupervisorFixture) -> None:
    child = context.child(after(1, BOOM, is_ready=False))
    child.start()
    await child.until(S.BACKOFF)
    await child.until(S.STARTING)
    end = child.status.last_end
    assert end is not None
    assert end.kind is EndKind.START_FAILED
    assert end.uptime_s == 0
    assert "before it was ready: LookupError: boom" in end.reason
    assert await child.until(S.RUNNING, S.FAILED) is S.FAILED


async def test_a_start_that_hangs_fails_in_the_end(context: SupervisorFixture) -> None:
    child = context.child(after(10_000, None, is_ready=False), ready_timeout_s=120)
    child.start()
    began = context.now()
    await child.until(S.FAILED)
    assert child.status.life == 6
    assert context.now() - began == pytest.approx(6 * 120 + 31)
    assert "not ready within 120 s" in child.status.reason


async def test_a_start_that_swallows_cancel_is_abandoned_and_tried_again(
    context: SupervisorFixture,
) -> None:
    lives: list[int] = []

    async def hangs_once(ctx: ChildContext) -> None:
        lives.append(ctx.life)
        if ctx.life > 1:
            await context.obeys(ctx)
        await context.swallows_cancel(_deaf(ctx))

    child = context.child(hangs_once, ready_timeout_s=10, grace=Grace(30, 5, 2))
    child.start()
    began = context.now()
    assert await child.until(S.RUNNING, S.DEGRADED) is S.DEGRADED
    assert context.now() - began == pytest.approx(10 + 5 + 2 + 1)
    assert child.status.abandoned == 1
    assert lives == [1, 2]
    context.release.set()
    await child.until(S.RUNNING)
    assert child.status.abandoned == 0


def _deaf(ctx: ChildContext) -> ChildContext:
    """The same life for code that says ready too early."""
    return ChildContext(ctx.child_id, ctx.life, ready=lambda: None, degraded=lambda _reason: None)


async def test_an_abandoned_life_has_no_say(context: SupervisorFixture) -> None:
    contexts: list[ChildContext] = []

    async def life(ctx: ChildContext) -> None:
        contexts.append(ctx)
        await (context.swallows_cancel(ctx) if ctx.life == 1 else asyncio.sleep(100))

    child = context.child(life, grace=Grace(0, 1, 1))
    child.start()
    await child.until(S.RUNNING)
    await child.restart()
    await child.until(S.STARTING)
    contexts[0].ready()
    contexts[0].degraded("old news")
    assert child.state is S.STARTING


# -- ends by request -------------------------------------------------------------------------------


async def test_42_rebuilds_at_once_and_counts_as_nothing(context: SupervisorFixture) -> None:
    child = context.child(asks(42, 7))
    child.start()
    await asyncio.sleep(7 * 40 + 1)
    assert child.state is S.RUNNING
    assert child.status.life == 41
    assert child.restarts_in_window == 0
    assert S.BACKOFF not in context.seen()


async def test_a_storm_of_42_fails(context: SupervisorFixture) -> None:
    child = context.child(asks(42, 0.1))
    child.start()
    await child.until(S.FAILED)
    assert child.status.life == 16


@pytest.mark.parametrize("code, state", [(0, S.STOPPED), (3, S.FAILED), (42, S.STOPPED)])
async def test_the_significant_childs_code_is_the_daemons(
    context: SupervisorFixture, code: int, state: AgentState
) -> None:
    child = context.child(asks(code), significant=True)
    child.start()
    await child.until(S.STOPPED, S.FAILED)
    assert child.state is state
    assert context.exits == [code]


async def test_a_crash_of_the_significant_child_is_1(context: SupervisorFixture) -> None:
    child = context.child(after(1, BOOM), significant=True)
    child.start()
    await child.until(S.FAILED)
    assert context.exits == [1]


async def test_sys_exit_in_a_child_does_not_end_the_daemon(context: SupervisorFixture) -> None:
    async def calls_exit(ctx: ChildContext) -> None:
        ctx.ready()
        raise SystemExit(42)

    child = context.child(calls_exit)
    child.start()
    await child.until(S.BACKOFF)
    assert "SystemExit" in child.status.reason


async def test_a_cancel_from_within_is_a_crash(context: SupervisorFixture) -> None:
    async def cancels_itself(ctx: ChildContext) -> None:
        ctx.ready()
        await asyncio.sleep(1)
        raise asyncio.CancelledError

    child = context.child(cancels_itself)
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
async def test_a_normal_end(
    context: SupervisorFixture, restart: Restart, expected: AgentState
) -> None:
    child = context.child(after(1, None), restart=restart)
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
        ("swallows_one_cancel", GRACE, 35, 0),
        ("swallows_cancel", GRACE, 37, 1),
        ("obeys", SHORT, 0, 0),
        ("drains_slowly", SHORT, 0, 0),
        ("ignores_drain", SHORT, 0, 0),
        ("closes_slowly", SHORT, 0.5, 0),
        ("swallows_one_cancel", SHORT, 0.5, 0),
        ("swallows_cancel", SHORT, 1, 1),
    ],
)
async def test_each_kind_is_stopped_within_its_bound(
    context: SupervisorFixture, kind: str, grace: Grace, took_s: float, left: int
) -> None:
    child = context.child(getattr(context, kind), grace=grace)
    child.start()
    await child.until(S.RUNNING)
    began = context.now()
    await child.stop()
    assert context.now() - began == pytest.approx(took_s, abs=1e-3)
    assert context.now() - began <= grace.total_s + 1e-3
    assert child.state is S.STOPPED
    assert child.status.abandoned == left


async def test_an_abandoned_life_is_logged_with_its_place(
    context: SupervisorFixture, caplog: pytest.LogCaptureFixture
) -> None:
    child = context.child(context.swallows_cancel, grace=SHORT)
    child.start()
    await child.until(S.RUNNING)
    with caplog.at_level(logging.ERROR):
        await child.stop()
    assert "abandoned life 1 of child ada" in caplog.text
    assert "swallows_cancel" in caplog.text


async def test_a_second_stop_may_be_more_urgent(context: SupervisorFixture) -> None:
    child = context.child(context.swallows_cancel, grace=GRACE)
    child.start()
    await child.until(S.RUNNING)
    owner = TaskOwner("test")
    polite = owner.spawn(child.stop(), name="stop:polite")
    await asyncio.sleep(3)
    began = context.now()
    await child.stop(SHORT)
    assert context.now() - began == pytest.approx(1)
    await asyncio.wait({polite}, timeout=0.1)
    assert polite.done()


async def test_a_cancelled_stop_goes_on_without_its_caller(context: SupervisorFixture) -> None:
    child = context.child(context.drains_slowly)
    child.start()
    await child.until(S.RUNNING)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await child.stop()
    assert child.state is S.STOPPING
    await child.until(S.STOPPED)


async def test_a_start_during_a_stop_builds_it_again(context: SupervisorFixture) -> None:
    child = context.child(context.drains_slowly)
    child.start()
    await child.until(S.RUNNING)
    owner = TaskOwner("test")
    stopping = owner.spawn(child.stop(), name="stop:ada")
    await asyncio.sleep(5)
    child.start()
    await child.until(S.RUNNING)
    assert child.status.life == 2
    assert stopping.done()
    assert S.STOPPED not in context.seen()[1:]


async def test_a_stop_before_the_first_step_starts_nothing(context: SupervisorFixture) -> None:
    child = context.child(context.obeys)
    child.start()
    async with asyncio.timeout(1):
        await child.stop()
    assert (child.state, child.status.life) == (S.STOPPED, 0)
    child.start()
    await child.until(S.RUNNING)


async def test_a_stop_while_starting_does_not_wait_for_ready(context: SupervisorFixture) -> None:
    child = context.child(after(1000, None, is_ready=False))
    child.start()
    await child.until(S.STARTING)
    began = context.now()
    await child.stop()
    assert context.now() - began < 0.1


@pytest.mark.parametrize("turns", range(12))
async def test_a_stop_racing_42_settles_stopped(context: SupervisorFixture, turns: int) -> None:
    ask = asyncio.Event()

    async def life(ctx: ChildContext) -> None:
        ctx.ready()
        await ask.wait()
        raise ExitRequested(42)

    child = context.child(life)
    child.start()
    await child.until(S.RUNNING)
    ask.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    await child.stop()
    await asyncio.sleep(100)
    assert child.state is S.STOPPED


@pytest.mark.parametrize("act", ["stop", "start", "edit", "restart"])
async def test_back_off_is_interrupted(context: SupervisorFixture, act: str) -> None:
    policy = RestartPolicy(base_s=50, cap_s=50)
    child = context.child(after(1, BOOM), policy=policy)
    child.start()
    await child.until(S.BACKOFF)
    await asyncio.sleep(10)
    assert context.seen()[-1] is S.BACKOFF
    began = context.now()
    if act == "stop":
        await child.stop()
        assert child.state is S.STOPPED
    elif act == "start":
        child.start()
        await child.until(S.RUNNING)
    elif act == "edit":
        child.replace(replace(child.spec, factory=context.obeys))
        await child.until(S.RUNNING)
    else:
        await child.restart()
        await child.until(S.RUNNING)
    assert context.now() - began < 0.1


async def test_an_edit_drains_and_rebuilds_with_the_new_spec(context: SupervisorFixture) -> None:
    child = context.child(context.drains_slowly)
    child.start()
    await child.until(S.RUNNING)
    child.replace(replace(child.spec, factory=context.obeys))
    await child.until(S.STOPPING)
    began = context.now()
    await child.until(S.RUNNING)
    assert context.now() - began == pytest.approx(20)
    await child.stop()
    assert context.now() - began == pytest.approx(20)
    child.replace(replace(child.spec, factory=context.drains_slowly))
    await asyncio.sleep(5)
    assert child.state is S.STOPPED
    with pytest.raises(ValueError, match="cannot become"):
        child.replace(replace(child.spec, child_id="bob"))


async def test_a_crash_during_a_rebuild_is_no_failure_of_the_new(
    context: SupervisorFixture,
) -> None:
    child = context.child(context.ignores_drain, grace=SHORT)
    child.start()
    await child.until(S.RUNNING)
    for _ in range(20):
        await child.restart()
        await child.until(S.RUNNING)
    assert child.restarts_in_window == 0
    assert child.status.life == 21


# -- degraded, scope, listeners --------------------------------------------------------------------


async def test_degraded_comes_and_goes(context: SupervisorFixture) -> None:
    contexts: list[ChildContext] = []

    async def life(ctx: ChildContext) -> None:
        contexts.append(ctx)
        ctx.degraded("no channel yet")
        await context.obeys(ctx)

    child = context.child(life)
    child.start()
    assert await child.until(S.RUNNING, S.DEGRADED) is S.DEGRADED
    assert child.status.reason == "no channel yet"
    since = child.status.running_since_at
    contexts[0].degraded(None)
    assert child.state is S.RUNNING
    contexts[0].degraded("lost it")
    assert (child.state, child.status.reason) == (S.DEGRADED, "lost it")
    assert child.status.running_since_at == since


async def test_listeners_hear_in_order_and_cannot_hurt(context: SupervisorFixture) -> None:
    heard: list[AgentState] = []

    def broken(_status: object) -> None:
        raise LookupError("a listener's bug")

    context.board.listen(broken)
    forget = context.board.listen(lambda status: heard.append(status.state))
    child = context.child(context.obeys)
    child.start()
    await child.until(S.RUNNING)
    forget()
    await child.stop()
    assert list(dict.fromkeys(heard)) == [S.STOPPED, S.STARTING, S.RUNNING]
    assert context.seen()[-1] is S.STOPPED


async def test_a_defect_in_supervision_fails_the_child_loudly(
    context: SupervisorFixture, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    child = context.child(after(1, BOOM))

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
