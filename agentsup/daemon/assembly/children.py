"""The small services that run beside the agents, as children of a rest-for-one supervisor."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from agentsup.agents.memory import rows as memories
from agentsup.agents.pipeline import results
from agentsup.agents.workspace import ProcessTable
from agentsup.approvals import grants
from agentsup.channels.core import retention as channels
from agentsup.channels.matrix import retention as matrix
from agentsup.config import Home, LimitSettings, watch
from agentsup.daemon.runtime.housekeeping import (
    BACKUP_EVERY_S,
    EXPIRE_EVERY_S,
    KEEP_EVERY_S,
    LOOK_EVERY_S,
    LOOK_FIRST_S,
    PRUNE_EVERY_S,
    Chore,
    Housekeeper,
    lock_chore,
)
from agentsup.daemon.runtime.reconcile import Reconciler
from agentsup.kit.clock import Clock
from agentsup.kit.lag import LagProbe
from agentsup.kit.reaper import Reaper
from agentsup.kit.tasks import TaskOwner, is_set_within
from agentsup.mailbox import Mailbox
from agentsup.mailbox.delivery import Relay
from agentsup.mailbox.queue import retention_rules
from agentsup.mailbox.usage.budget import ledger as budgets
from agentsup.store import Database, Pruned, PruningClock, Tx, add_to_totals, prune
from agentsup.supervision import ChildContext, ChildSpec, Grace, Restart, RestartPolicy
from agentsup.tasks import rows as runs

SCRIPTS_EVERY_S = 2.0
"""The interval in seconds at which script files are checked."""
_GRACE = Grace(drain_s=2.0, cancel_s=1.0, kill_s=0.5)
LAST_ANSWERS_S = 1.0
"""How long, in seconds, a stop of the daemon waits for the last deliveries. What is left is
delivered after the next start."""
_FOR_EVER = RestartPolicy(is_endless=True, cap_s=30.0)


def permanent_child(child_id: str, life: Callable[[ChildContext], Awaitable[None]]) -> ChildSpec:
    """A child that is started again after every end."""
    return ChildSpec(child_id, life, Restart.PERMANENT, grace=_GRACE, policy=_FOR_EVER)


def draining_child(
    child_id: str, run: Callable[[Callable[[], None], asyncio.Event], Awaitable[None]]
) -> ChildSpec:
    """A permanent child that runs ``run(ready, draining)``."""

    async def life(ctx: ChildContext) -> None:
        await run(ctx.ready, ctx.draining)

    return permanent_child(child_id, life)


def relay_spec(relay: Relay) -> ChildSpec:
    """The relay, which delivers the outbox. When it drains, it goes on for up to
    ``LAST_ANSWERS_S``, so that the answers of the last turns leave too."""

    async def life(ctx: ChildContext) -> None:
        emptied = asyncio.Event()

        async def empty() -> None:
            await ctx.draining.wait()
            await relay.emptied(LAST_ANSWERS_S)
            emptied.set()

        ending = TaskOwner("relay-end")
        ending.spawn(empty(), name="drain:outbox")
        try:
            await relay.run(ctx.ready, emptied)
        finally:
            await ending.close(0.1)

    return permanent_child("relay", life)


def housekeeping_spec(
    database: Database,
    mailbox: Mailbox,
    clock: Clock,
    limits: Callable[[], LimitSettings],
    purges: Sequence[Callable[[int], Awaitable[object]]],
    keep_lock: Callable[[], bool],
    look_at_files: Callable[[], Awaitable[object]],
    report_modes: Callable[[], Awaitable[object]],
) -> ChildSpec:
    """The child that runs the chores: deadlines, retention, backups, the home's lock and checks of
    files.

    ``limits`` returns the current limits (days that rows are kept, number of backups). Each of
    ``purges`` gets the wall time and removes files that are too old by then. ``look_at_files``
    checks whether our own files were replaced. ``report_modes`` reports file modes that the start
    has corrected, once notices can be sent.
    """
    due_at: int | None = None
    looked_at = -1
    pruning = PruningClock(database, clock)

    async def expire() -> None:
        nonlocal due_at, looked_at
        commits = database.stats.commits
        if commits != looked_at:  # else no write can have moved the deadline
            due_at = await mailbox.deadlines.next()
            looked_at = commits
        if mailbox.context.steady.is_due(due_at):
            await mailbox.deadlines.expire()

    async def prune_all() -> None:
        rules = (
            *retention_rules(keep_days=limits().keep_days),
            *channels.retention_rules(keep_days=limits().keep_days),
            *matrix.retention_rules(),
            *results.retention_rules(),
            *grants.retention_rules(),
            *memories.retention_rules(),
            *budgets.retention_rules(keep_days=limits().keep_days),
            *runs.retention_rules(keep_days=limits().keep_days),
        )
        now_ms = await pruning.now_ms()
        for purge in purges:
            await purge(now_ms)
        await prune(database, rules, clock=clock, now_ms=now_ms, on_pruned=_keep_sums)

    async def back_up() -> None:
        await database.back_up(keep=limits().backups)

    chores = (
        Chore("expire", EXPIRE_EVERY_S, EXPIRE_EVERY_S, expire),
        Chore("modes", LOOK_EVERY_S, LOOK_FIRST_S, report_modes),
        Chore("prune", PRUNE_EVERY_S, 300.0, prune_all),
        Chore("backup", BACKUP_EVERY_S, 600.0, back_up),
        lock_chore(keep_lock),
        Chore("files", KEEP_EVERY_S, KEEP_EVERY_S, look_at_files),
        Chore("store record", KEEP_EVERY_S, KEEP_EVERY_S, database.record_last_event),
    )
    return draining_child("housekeeping", Housekeeper(chores, clock).run)


def own_process_specs(
    lag: LagProbe, reaper: Reaper | None, processes: ProcessTable
) -> tuple[ChildSpec, ...]:
    """The children that look after this process.

    One measures the loop's lag and dumps stacks when the loop is stuck. The other, if orphans are
    reparented to us, ends those that no program of ours owns.
    """
    measured = cancelled_child("lag", lag.run)
    if reaper is None:
        return (measured,)
    return measured, cancelled_child("reaper", partial(reaper.run, processes.record_detached))


def watcher_spec(
    home: Home,
    reconciler: Reconciler,
    refresh_knowledge: Callable[[], Awaitable[object]],
    clock: Clock,
) -> ChildSpec:
    """Watches the declared files and the shared memory for edits."""

    async def on_change(names: set[str]) -> None:
        if home.shared_memory.name in names:
            await refresh_knowledge()
        if names - {home.shared_memory.name}:
            await reconciler.reload()

    async def life(ctx: ChildContext) -> None:
        ctx.ready()
        await watch(
            home.watched,
            on_change=on_change,
            stop=ctx.draining,
            clock=clock,
            known=reconciler.snapshot.file_hashes,
            files=reconciler.files,
        )

    return permanent_child("watcher", life)


def scripts_spec(reconciler: Reconciler) -> ChildSpec:
    """Watches the scripts that agents use for edits."""

    async def life(ctx: ChildContext) -> None:
        ctx.ready()
        while not ctx.draining.is_set():
            await is_set_within(ctx.draining, SCRIPTS_EVERY_S)
            try:
                look = reconciler.scripts.has_changed
                has_changed = await reconciler.files.run(look, key="scripts")
            except OSError:
                continue  # a file hangs: checked again next time
            if has_changed:
                await reconciler.reload()

    return permanent_child("scripts", life)


def cancelled_child(child_id: str, run: Callable[[], Coroutine[Any, Any, None]]) -> ChildSpec:
    """A permanent child that runs until draining cancels it."""

    async def life(ctx: ChildContext) -> None:
        ctx.ready()
        async with asyncio.TaskGroup() as group:
            work = group.create_task(run(), name=f"run:{child_id}")
            await ctx.draining.wait()
            work.cancel()

    return permanent_child(child_id, life)


def _keep_sums(tx: Tx, pruned: Pruned) -> None:
    """Add pruned rows to the totals, which count all rows that ever existed, and to the budget
    ledger."""
    add_to_totals(tx, pruned)
    budgets.fold_tx(tx, pruned)
