"""Stop means stop (P5): raise the epoch, end turns and process groups, record it, count exactly.

Killing and recording run concurrently, so that a slow disk delays no kill. A stop that the store
could not record holds in memory, and the report says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from agentsup.agents import AgentStack
from agentsup.agents.workspace import ProcessTable
from agentsup.channels.core.receiving import mark_tx
from agentsup.kit import proctable
from agentsup.kit.clock import Clock
from agentsup.kit.process_tracker import GroupRecord
from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox import Mailbox
from agentsup.mailbox.messages import StopCounts
from agentsup.model.control import RemainingSchedule, StopReport
from agentsup.model.errors import AgentsupError, BadRequest
from agentsup.model.message import Message, MessageState
from agentsup.model.principal import Principal
from agentsup.store import Tx
from agentsup.tasks import remaining_schedules

STOP_CANCEL_S = 0.5
"""Grace of /stop and /interrupt before a turn is abandoned (design, states and limits)."""
STOP_ALL_CANCEL_S = 0.2
KILL_GRACE_S = 0.6
"""TERM → KILL of a turn's process group takes 0.5 s; a little is added for reaping."""
DURABLE_S = 5.0
"""Seconds that the report waits for the disk before it says that the stop isn't durable."""


def in_scope(scope: str) -> Callable[[Message], bool]:
    """Whether a message belongs to ``all``, ``agent:<id>`` or ``session:<id>``."""
    kind, _, subject = scope.partition(":")
    if kind == "all":
        return lambda message: True
    if kind == "agent":
        return lambda message: message.agent_id == subject
    if kind == "session":
        return lambda message: message.session_id == subject
    raise BadRequest(f"there is no scope {scope!r}; use all, agent:ID or session:ID", field="scope")


@dataclass(frozen=True, slots=True, eq=False)
class Stopper:
    """Applies a stop or an interrupt over the running stacks."""

    mailbox: Mailbox
    processes: ProcessTable
    clock: Clock
    stacks: Callable[[], Iterable[AgentStack]]
    name_of: Callable[[str], str]
    tasks: TaskOwner

    async def stop(self, scope: str, by: Principal, *, given_in: str = "") -> StopReport:
        """End or cancel everything in ``scope`` that was accepted before now, and count it.

        Unread updates of channels are dropped too, except by ``given_in``, which has done so
        already. Raises ``BadRequest`` for an unknown scope.
        """
        wanted = in_scope(scope)
        began_s = self.clock.monotonic()
        # Raised before anything is awaited: from here on, no claim in progress can start a turn.
        self.mailbox.context.epochs.raise_now(scope)
        remaining: list[tuple[RemainingSchedule, ...]] = []

        def also(tx: Tx) -> None:
            mark_tx(tx, scope, given_in)
            remaining.append(remaining_schedules(tx, scope))

        recording = self.tasks.spawn(
            self.mailbox.control.stop(scope, by, also=also), name=f"stop:{scope}"
        )
        cancel_s = STOP_ALL_CANCEL_S if scope == "all" else STOP_CANCEL_S
        agents, processes = await self._end(wanted, cancel_s)
        counts, durable = await self._recorded(recording, scope)
        late = frozenset(counts.message_ids)
        await self._end(lambda m: m.message_id in late, cancel_s)
        report = self._report(scope, counts, durable, agents, processes, began_s)
        return replace(report, schedules=remaining[-1] if remaining else ())

    async def interrupt(self, session_id: str, by: Principal) -> StopReport:
        """Cancel the running or parked turn of one session; its queue goes on."""
        began_s = self.clock.monotonic()
        cancelled = await self.mailbox.control.interrupt(session_id, by)
        scope = f"session:{session_id}"
        if cancelled is None:
            return self._report(scope, StopCounts(scope, 0), True, set(), 0, began_s)
        ended = {cancelled.message_id, *cancelled.with_it}
        agents, processes = await self._end(lambda m: m.message_id in ended, STOP_CANCEL_S)
        counts = StopCounts(
            scope,
            0,
            running=int(cancelled.was is MessageState.LEASED),
            parked=int(cancelled.was is MessageState.PARKED),
        )
        return self._report(scope, counts, True, agents, processes, began_s)

    async def cancel_turns(self, message_ids: Iterable[str]) -> None:
        """End the turns of messages that were cancelled one by one."""
        ended = set(message_ids)
        await self._end(lambda m: m.message_id in ended, STOP_CANCEL_S)

    # -- inside ------------------------------------------------------------------------------------

    async def _end(
        self, wanted: Callable[[Message], bool], cancel_s: float
    ) -> tuple[set[str], int]:
        hit: list[tuple[AgentStack, list[GroupRecord]]] = []
        for stack in tuple(self.stacks()):
            ids = [w.lease.message.message_id for w in stack.in_flight if wanted(w.lease.message)]
            if ids:
                hit.append((stack, self.processes.groups_of(ids)))
        groups = [g for _, found in hit for g in found]
        # Counted before the first signal. Read on the loop: a thread hop would delay the kill.
        count = _living(groups)
        ends = [
            self.tasks.spawn(
                stack.abort(wanted, cancel_s=cancel_s + (KILL_GRACE_S if found else 0.0)),
                name=f"abort:{stack.agent_id}",
            )
            for stack, found in hit
        ]
        if ends:
            await asyncio.wait(ends)
        await self.processes.kill(groups)
        return {stack.agent_id for stack, _ in hit}, count

    async def _recorded(
        self, recording: asyncio.Task[StopCounts], scope: str
    ) -> tuple[StopCounts, bool]:
        await asyncio.wait({recording}, timeout=DURABLE_S)
        if recording.done() and not isinstance(recording.exception(), AgentsupError):
            return recording.result(), True
        # It is late, or failed: the disk, or a writer that is overrun.
        return StopCounts(scope, self.mailbox.context.epochs.current(scope)), False

    def _report(
        self,
        scope: str,
        counts: StopCounts,
        durable: bool,
        agents: set[str],
        processes: int,
        began_s: float,
    ) -> StopReport:
        return StopReport(
            scope=scope,
            running=counts.running,
            queued=counts.queued,
            parked=counts.parked,
            processes=processes,
            agents=len(agents | set(counts.agent_ids)),
            elapsed_ms=(self.clock.monotonic() - began_s) * 1000,
            durable=durable,
            names=tuple(sorted(self.name_of(a) for a in agents | set(counts.agent_ids))),
        )


def _living(groups: list[GroupRecord]) -> int:
    if not groups:
        return 0
    wanted = {group.pgid for group in groups}
    return sum(1 for row in proctable.table() if row.is_alive and row.pgid in wanted)
