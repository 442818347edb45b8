"""Records of the daemon about itself: ends of lives, states, its address, and notices."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from typing import Any

from agentsup.api.server import ApiServer
from agentsup.daemon.runtime import boot
from agentsup.daemon.runtime.boot_context import BootContext
from agentsup.daemon.runtime.ending import Ending
from agentsup.kit import proctable
from agentsup.kit.files import write_atomic
from agentsup.kit.log import get_logger
from agentsup.kit.tasks import OwnerClosed, TaskOwner
from agentsup.model.agent import MAIN
from agentsup.model.errors import StoreUnavailable
from agentsup.model.event import EventType
from agentsup.model.health import AgentState
from agentsup.store import Tx, append
from agentsup.supervision import REBUILD_CODE, Board, ChildStatus, Ended, EndKind

_log = get_logger(__name__)


class LifeRecorder:
    """Listens to the board and stores what people will ask for later."""

    def __init__(
        self,
        boot_context: BootContext,
        *,
        board: Board,
        tasks: TaskOwner,
        tell: Callable[[str], Awaitable[None]],
        ending: Ending,
    ) -> None:
        """``tell(text)`` reaches an operator."""
        self._boot_context = boot_context
        self._tasks = tasks
        self._tell = tell
        self._ending = ending
        self._seen: dict[str, ChildStatus] = {}
        self._is_end_reported = False
        board.listen(self._changed)

    async def announce_address(self, api: ApiServer) -> None:
        """Publish the address where the daemon listens: in ``daemon.json`` for the command line, and
        to the person who watches the start."""
        boot_context = self._boot_context
        path = boot_context.home.daemon_json
        home = await asyncio.to_thread(path.parent.stat)
        data = {
            # The file may be copied, so it names its home.
            "home": str(path.parent),
            "home_inode": [home.st_dev, home.st_ino],
            "machine_boot": proctable.boot_id(),
            "pid": os.getpid(),
            "url": api.url,
            # A restart keeps a port that comes from ``--port``.
            "is_port_given": boot_context.port is not None,
            "boot_id": boot_context.boot.boot_id,
            "started_at": boot_context.clock.now_ms(),
            # The CLI can't see this: our environment is closed to other programs of the same user.
            "systemd": "NOTIFY_SOCKET" in os.environ,
        }
        await asyncio.to_thread(write_atomic, path, json.dumps(data).encode() + b"\n")
        if boot_context.announce is not None:
            boot_context.announce(await api.one_time_link())

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
            facts: dict[str, Any] = {"reason": status.reason} if status.reason else {}
            is_shown = name != status.child_id and status.state in _SHOWN  # an agent or its bot
            usual = _log.info if is_shown else _log.debug
            level = _log.warning if status.state in _UNWELL else usual
            level(f"{name} is {status.state.value}", child=name, **facts)
        new_end = end if is_new_end else None
        at = self._boot_context.clock.now_ms()
        try:
            self._tasks.spawn(
                self._keep(name, status, new_end, at, is_new_state=is_new_state),
                name=f"record:{name}",
            )
        except OwnerClosed:
            return

    async def _keep(
        self, name: str, status: ChildStatus, end: Ended | None, at: int, *, is_new_state: bool
    ) -> None:
        database, boot_id = self._boot_context.database, self._boot_context.boot.boot_id
        try:
            if is_new_state:
                await database.write(self._state_tx, name, status, name="recorder.state")
            if end is not None:
                await boot.record_ending(database, boot_id, at, status, end)
            if is_new_state and status.state in _OVER:
                await self._tell_over(name, status)
        except StoreUnavailable as error:
            _log.warning("state not recorded", child=name, reason=error.message)

    async def _tell_over(self, name: str, status: ChildStatus) -> None:
        if self._boot_context.roster.by_id(status.child_id) is None:
            return  # a service: its supervisor starts it again or ends the daemon
        code = self._ending.ends_with
        if name == MAIN and code is not None:
            text = "" if self._is_end_reported else _end_of_main(status, code)
            self._is_end_reported = True
            if text:
                await self._tell(text)
        elif status.state is AgentState.FAILED:
            await self._tell(
                f"{name} has failed and stays down: {status.reason}. "
                f"/agent_start {name} tries again."
            )

    def _name(self, child_id: str) -> str:
        """The name that people know: an agent's name, or ``telegram:NAME`` for its bot."""
        kind, colon, agent_id = child_id.rpartition(":")
        return kind + colon + self._boot_context.roster.name_of(agent_id)

    def _state_tx(self, tx: Tx, name: str, status: ChildStatus) -> None:
        append(
            tx,
            EventType.AGENT_STATE,
            at=self._boot_context.clock.now_ms(),
            agent_id=status.child_id,
            data={"name": name, "state": status.state.value, "reason": status.reason},
        )


def _end_of_main(status: ChildStatus, code: int) -> str:
    """The notice that the whole daemon ends with main; empty if somebody wanted that end."""
    end = status.last_end
    if end is None or end.wanted or end.kind is EndKind.STOPPED or code == REBUILD_CODE:
        return ""
    how = f"main has failed: {end.reason}"
    if end.kind is EndKind.EXIT_REQUESTED:
        how = f"main asked for the end with code {code} ({end.reason})"
    return (
        f"{how}. The whole daemon ends with it (code {code}), all agents too; nothing accepted is "
        "lost. Where systemd, a container or the small parent that `agentsup up` leaves watches over "
        "it, that may start it again; else `agentsup up` does."
    )


_OVER = (AgentState.FAILED, AgentState.STOPPED)
_SHOWN = (AgentState.RUNNING, AgentState.STOPPED)
_UNWELL = (AgentState.FAILED, AgentState.BACKOFF, AgentState.DEGRADED)
