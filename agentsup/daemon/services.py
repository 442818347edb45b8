"""The small services that run beside the agents, as children of the spine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from agentsup.agents.memory import rows as memories
from agentsup.agents.pipeline import results
from agentsup.agents.processes import ProcessTable
from agentsup.approvals import grants
from agentsup.channels.matrix import kept
from agentsup.channels.telegram import updates
from agentsup.config.home import Home
from agentsup.config.watch import watch
from agentsup.daemon.housekeeping import (
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
from agentsup.daemon.reconcile import Reconciler
from agentsup.kit.clock import Clock
from agentsup.kit.lag import LagProbe
from agentsup.kit.reaper import Reaper
from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox.budget import keeping as budgets
from agentsup.mailbox.mailbox import Mailbox
from agentsup.mailbox.reading import retention_rules
from agentsup.mailbox.relay import Relay
from agentsup.store.database import Database, Tx
from agentsup.store.retention import Pruned, PruningClock, add_to_totals, prune
from agentsup.supervision.policy import RestartPolicy
from agentsup.supervision.spec import ChildContext, ChildSpec, Grace, Restart
from agentsup.supervision.watchdog import Watchdog
from agentsup.tasks import keeping as runs

SHORT = Grace(drain_s=2.0, cancel_s=1.0, kill_s=0.5)
LAST_ANSWERS_S = 1.0
"""How long the end of the daemon waits for the last deliveries; what is left waits for a boot."""
FOR_EVER = RestartPolicy(max_restarts=None, cap_s=30.0)


def relay_spec(relay: Relay) -> ChildSpec:
    """Delivers the outbox, at the end also what the last turns have left in it."""

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

    return ChildSpec("relay", life, Restart.PERMANENT, grace=SHORT, policy=FOR_EVER)


def housekeeping_spec(
    database: Database,
    mailbox: Mailbox,
    clock: Clock,
    keep_days: Callable[[], int],
    purge: Callable[[int], Awaitable[object]],
    keep_lock: Callable[[], bool],
    keepers: Mapping[str, Callable[[], Awaitable[object]]],
) -> ChildSpec:
    """Deadlines, retention, backups, the home's lock; ``purge`` removes what was put away long before
    the time (wall ms) it is given, ``keepers`` put right what others changed."""
    due_at: int | None = None
    looked_at = -1
    pruning = PruningClock(database, clock)

    async def expire() -> None:
        nonlocal due_at, looked_at
        commits = database.stats.commits
        if commits != looked_at:  # else nothing was written that could have moved it
            due_at = await mailbox.next_deadline()
            looked_at = commits
        if mailbox.desk.steady.is_due(due_at):
            await mailbox.expire()

    async def prune_all() -> None:
        rules = (
            *retention_rules(keep_days=keep_days()),
            *updates.retention_rules(),
            *kept.retention_rules(),
            *results.retention_rules(),
            *grants.retention_rules(),
            *memories.retention_rules(),
            *budgets.retention_rules(keep_days=keep_days()),
            *runs.retention_rules(keep_days=keep_days()),
        )
        now_ms = await pruning.now_ms()
        await purge(now_ms)
        await prune(database, rules, clock=clock, now_ms=now_ms, on_pruned=_keep_sums)

    chores = (
        Chore("expire", EXPIRE_EVERY_S, EXPIRE_EVERY_S, expire),
        *(Chore(name, LOOK_EVERY_S, LOOK_FIRST_S, look) for name, look in keepers.items()),
        Chore("prune", PRUNE_EVERY_S, 300.0, prune_all),
        Chore("backup", BACKUP_EVERY_S, 600.0, database.back_up),
        lock_chore(keep_lock),
        Chore("note", KEEP_EVERY_S, KEEP_EVERY_S, database.note),
    )
    keeper = Housekeeper(chores, clock)

    async def life(ctx: ChildContext) -> None:
        await keeper.run(ctx.ready, ctx.draining)

    return ChildSpec("housekeeping", life, Restart.PERMANENT, grace=SHORT, policy=FOR_EVER)


def own_process_specs(
    lag: LagProbe, reaper: Reaper | None, processes: ProcessTable
) -> tuple[ChildSpec, ...]:
    """What looks after this process: measures the loop's lag and dumps stacks when it is stuck, and,
    where orphans fall to us, ends those that belong to no program of ours."""
    measured = _endless("lag", lag.run)
    if reaper is None:
        return (measured,)
    return measured, _endless("reaper", partial(reaper.run, processes.record_strays))


def watchdog_spec(watchdog: Watchdog) -> ChildSpec:
    """Asks the probes and feeds systemd."""
    return _endless("watchdog", watchdog.run)


def watcher_spec(
    home: Home,
    reconciler: Reconciler,
    refresh_knowledge: Callable[[], Awaitable[object]],
    clock: Clock,
) -> ChildSpec:
    """Sees edits of the declared files and of the shared memory."""

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

    return ChildSpec("watcher", life, Restart.PERMANENT, grace=SHORT, policy=FOR_EVER)


def _endless(child_id: str, run: Callable[[], Awaitable[None]]) -> ChildSpec:
    """A child that runs until it is cancelled; its drain is its end."""

    async def life(ctx: ChildContext) -> None:
        ctx.ready()
        async with asyncio.TaskGroup() as group:
            work = group.create_task(_as_coroutine(run), name=f"run:{child_id}")
            await ctx.draining.wait()
            work.cancel()

    return ChildSpec(child_id, life, Restart.PERMANENT, grace=SHORT, policy=FOR_EVER)


async def _as_coroutine(run: Callable[[], Awaitable[None]]) -> None:
    await run()


def _keep_sums(tx: Tx, pruned: Pruned) -> None:
    """What is pruned stays in the sums over all there ever was."""
    add_to_totals(tx, pruned)
    budgets.fold_tx(tx, pruned)
