"""What the daemon writes down about itself: endings of lives, states, notices in main's chat."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from agentsup.daemon import boot
from agentsup.daemon.roster import Roster
from agentsup.kit import machine
from agentsup.kit.clock import Clock
from agentsup.kit.files import write_atomic
from agentsup.kit.tasks import OwnerClosed, TaskOwner
from agentsup.model.agent import MAIN
from agentsup.model.errors import StoreUnavailable
from agentsup.model.event import EventType
from agentsup.model.health import AgentState
from agentsup.observe.logging import get_logger
from agentsup.store.database import Database, Tx
from agentsup.store.events import append
from agentsup.supervision.board import Board, ChildStatus
from agentsup.supervision.policy import REBUILD_CODE, Ended, EndKind

_log = get_logger(__name__)


class Recorder:
    """Listens to the board and keeps what people will ask for later."""

    def __init__(
        self,
        *,
        database: Database,
        clock: Clock,
        roster: Roster,
        board: Board,
        boot_id: str,
        tasks: TaskOwner,
        tell: Callable[[str], Awaitable[None]],
        ending: Callable[[], int | None],
    ) -> None:
        """``tell(text)`` reaches an operator. ``ending()`` is the code with which the daemon ends,
        from the moment that is decided."""
        self._database = database
        self._clock = clock
        self._roster = roster
        self._boot_id = boot_id
        self._tasks = tasks
        self._tell = tell
        self._ends_with = ending
        self._seen: dict[str, ChildStatus] = {}
        self._is_end_told = False
        board.listen(self._changed)

    async def write_address(self, path: Path, url: str) -> None:
        """Say where this daemon is, for the CLI, and which home it is of: the file may be copied."""
        home = await asyncio.to_thread(path.parent.stat)
        data = {
            "home": str(path.parent),
            "home_inode": [home.st_dev, home.st_ino],
            "machine_boot": machine.boot_id(),
            "pid": os.getpid(),
            "url": url,
            "boot_id": self._boot_id,
            "started_at": self._clock.now_ms(),
            # Nobody else can see it: our environment is closed to the same user's programs.
            "systemd": "NOTIFY_SOCKET" in os.environ,
        }
        await asyncio.to_thread(write_atomic, path, json.dumps(data).encode() + b"\n")

    def _changed(self, status: ChildStatus) -> None:
        before = self._seen.get(status.child_id)
        self._seen[status.child_id] = status
        is_new_state = before is None or before.state is not status.state
        end = status.last_end
        is_new_end = end is not None and (before is None or before.last_end != end)
        if not (is_new_state or is_new_end):
            return
        name = self._name(status.child_id)
        if is_new_state:
            level = _log.warning if status.state in _UNWELL else _log.info
            level("child", child=name, state=status.state.value, reason=status.reason)
        ending = self._ending(status, end) if is_new_end and end is not None else None
        try:
            self._tasks.spawn(
                self._keep(name, status if is_new_state else None, ending), name=f"record:{name}"
            )
        except OwnerClosed:
            return

    async def _keep(
        self, name: str, status: ChildStatus | None, ending: boot.Ending | None
    ) -> None:
        try:
            if status is not None:
                await self._database.write(
                    lambda tx: self._state_tx(tx, name, status), name="recorder.state"
                )
            if ending is not None:
                await boot.record_ending(self._database, self._boot_id, ending)
            if status is not None and status.state in _OVER:
                await self._tell_over(name, status)
        except StoreUnavailable as error:
            _log.warning("state not recorded", child=name, reason=error.message)

    async def _tell_over(self, name: str, status: ChildStatus) -> None:
        if self._roster.by_id(status.child_id) is None:
            return  # a part of the spine, which starts it again or ends the daemon
        code = self._ends_with()
        if name == MAIN and code is not None:
            told = "" if self._is_end_told else _end_of_main(status, code)
            self._is_end_told = True
            if told:
                await self._tell(told)
        elif status.state is AgentState.FAILED:
            await self._tell(
                f"{name} has failed and stays down: {status.reason}. "
                f"/agent_start {name} tries again."
            )

    def _name(self, child_id: str) -> str:
        """As people know it: an agent's name, ``telegram:<its name>`` for its bot."""
        kind, colon, agent_id = child_id.rpartition(":")
        return kind + colon + self._roster.name_of(agent_id)

    def _ending(self, status: ChildStatus, end: Ended) -> boot.Ending:
        return boot.Ending(
            status.child_id,
            self._clock.now_ms(),
            end.kind.value,
            end.code,
            end.reason,
            round(end.uptime_s * 1000),
            status.state.value,
        )

    def _state_tx(self, tx: Tx, name: str, status: ChildStatus) -> None:
        append(
            tx,
            EventType.AGENT_STATE,
            at=self._clock.now_ms(),
            agent_id=status.child_id,
            data={"name": name, "state": status.state.value, "reason": status.reason},
        )


def _end_of_main(status: ChildStatus, code: int) -> str:
    """What to say where the whole daemon ends with main; nothing where somebody wanted that."""
    end = status.last_end
    if end is None or end.wanted or end.kind is EndKind.STOPPED or code == REBUILD_CODE:
        return ""
    how = f"main has failed: {end.reason}"
    if end.kind is EndKind.EXIT_REQUESTED:
        how = f"main asked for the end with code {code} ({end.reason})"
    return (
        f"{how}. The whole daemon ends with it (code {code}), all agents too; nothing accepted is "
        "lost. Where systemd or a container watches over it, that may start it again; else "
        "`agentsup up` does."
    )


_OVER = (AgentState.FAILED, AgentState.STOPPED)
_UNWELL = (AgentState.FAILED, AgentState.BACKOFF, AgentState.DEGRADED)
