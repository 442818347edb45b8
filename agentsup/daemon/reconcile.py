"""Reconcile: desired against actual, woken by an edit, a command or a start (P4).

Every pass compares what is declared and what an operator decided with what runs, and changes only
the difference. Each agent converges in a task of its own under its own lock, so a slow drain delays
no other agent and ten saves in a row end in the last one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Protocol

from agentsup.config.agents_file import MAX_BYTES
from agentsup.config.diff import Plan, diff, diff_specs, takes_rebuild
from agentsup.config.files import ConfigFiles
from agentsup.config.home import Home
from agentsup.config.reading import read_config
from agentsup.config.snapshot import ConfigSnapshot, Overrides, content_hash
from agentsup.daemon.fleet import Fleet, Unit
from agentsup.daemon.roster import Roster, is_wanted_up
from agentsup.kit.clock import Clock
from agentsup.kit.files import write_atomic
from agentsup.kit.planted import read_plain
from agentsup.kit.tasks import TaskOwner
from agentsup.model.agent import AgentSpec
from agentsup.model.errors import ConfigErrors, NotFound
from agentsup.model.event import EventType
from agentsup.model.health import AgentState
from agentsup.observe.logging import get_logger
from agentsup.store.database import Database
from agentsup.store.events import append

_log = get_logger(__name__)


class AppliedHome(Home):
    """A home whose declared files are the copies that were applied last."""

    @property
    def config_toml(self) -> Path:
        return self.root / "applied" / "config.toml"

    @property
    def agents_json(self) -> Path:
        return self.root / "applied" / "agents.json"


class ChannelMatcher(Protocol):
    """Where the agents' channels are kept."""

    def match(
        self, agent_id: str, spec: AgentSpec, *, is_up: bool, retry: bool = False
    ) -> None: ...

    async def release(self, agent_id: str) -> None: ...


class Reconciler:
    """Holds the current snapshot and brings the fleet in line with it."""

    def __init__(
        self,
        *,
        home: Home,
        snapshot: ConfigSnapshot,
        database: Database,
        clock: Clock,
        roster: Roster,
        fleet: Fleet,
        tasks: TaskOwner,
        tell: Callable[[str], Awaitable[None]],
        on_snapshot: Callable[[ConfigSnapshot], Awaitable[None]],
        on_removed: Callable[[str], None],
        engine_of: Callable[[AgentSpec], str],
        channels: ChannelMatcher,
        files: ConfigFiles | None = None,
    ) -> None:
        """``tell(text)`` reaches main's conversation; ``on_snapshot`` hears of each new one;
        ``on_removed(agent_id)`` lets go of what else belongs to an agent; ``engine_of(spec)`` is
        the engine that would be built now; ``files`` reads the declared files."""
        self.files = files or ConfigFiles()
        self._home = home
        self.snapshot = snapshot
        self._database = database
        self._clock = clock
        self._roster = roster
        self._fleet = fleet
        self._tasks = tasks
        self._tell = tell
        self._on_snapshot = on_snapshot
        self._on_removed = on_removed
        self._engine_of = engine_of
        self._channels = channels
        self._is_closed = False
        self._lock = asyncio.Lock()
        self.config_error = ""
        self.needs_restart: tuple[str, ...] = ()

    # -- edits -------------------------------------------------------------------------------------

    async def reload(self) -> bool:
        """Read the files again and apply the difference; False if they are wrong.

        Returns once everything is decided: live fields effective, starts and drains begun.
        """
        async with self._lock:
            began_s = self._clock.monotonic()
            try:
                new = await read_config(
                    self.files, self._home, self._roster.overrides(), previous=self.snapshot
                )
            except ConfigErrors as error:
                await self.complain(error)
                return False
            mended = bool(self.config_error)
            self.config_error = ""
            plan = diff(self.snapshot, new)
            await self._apply(plan, new)
            took_ms = (self._clock.monotonic() - began_s) * 1000
            if mended:
                await self._tell("The configuration is valid again and was applied.")
            if not plan.is_empty or mended:
                await self._record_applied(plan, took_ms)
                await self._keep(new)
            return True

    async def _keep(self, applied: ConfigSnapshot) -> None:
        step = partial(keep_applied, self._home, applied)
        try:
            await self.files.run(step, key="applied")
        except OSError as error:
            _log.warning("what was applied could not be kept", reason=error.strerror or str(error))

    async def complain(self, error: ConfigErrors) -> None:
        """Say what is wrong, where it stands; once per complaint."""
        text = "\n".join(str(finding) for finding in error.findings)
        if text == self.config_error:
            return
        self.config_error = text
        for finding in error.findings:
            _log.error(
                "edit not applied",
                file=finding.path,
                line=finding.line,
                column=finding.column,
                field=finding.field,
                reason=finding.message,
                hint=finding.hint,
            )
        now = self._clock.now_ms()
        await self._database.write(
            lambda tx: append(tx, EventType.CONFIG_REFUSED, at=now, data={"error": text}),
            name="config.refused",
        )
        await self._tell(f"An edit was not applied; everything stays as it was:\n{text}")

    async def _apply(self, plan: Plan, new: ConfigSnapshot) -> None:
        if plan.added or plan.removed or plan.changed:
            await self._roster.take_over(new.specs)
        for cleared in plan.cleared:
            await self._clear_override(cleared.agent, cleared.field)
            await self._tell(
                f"The override of {cleared.field} of {cleared.agent} ended: {cleared.reason}."
            )
        self.snapshot = new
        if plan.needs_restart:
            self.needs_restart = tuple(dict.fromkeys((*self.needs_restart, *plan.needs_restart)))
        await self._on_snapshot(new)
        self.converge_all(edited={*plan.changed, *plan.added})

    async def _clear_override(self, name: str, field: str) -> None:
        try:
            entry = self._roster.entry(name)
        except NotFound:
            return
        kept = {path: value for path, value in entry.overrides.items() if path != field}
        await self._roster.set_overrides(name, kept)

    async def _record_applied(self, plan: Plan, took_ms: float) -> None:
        now = self._clock.now_ms()
        data = {
            "added": list(plan.added),
            "removed": list(plan.removed),
            "changed": {name: list(changes) for name, changes in plan.changed.items()},
            "rebuild": list(plan.rebuild),
            "settings": list(plan.settings),
            "took_ms": round(took_ms, 1),
        }
        _log.info("configuration applied", **data)
        await self._database.write(
            lambda tx: append(tx, EventType.CONFIG_APPLIED, at=now, data=data),
            name="config.applied",
        )

    # -- converging --------------------------------------------------------------------------------

    def close(self) -> None:
        """Begin nothing any more: the daemon ends, and what it stops must stay stopped."""
        self._is_closed = True

    def converge_all(self, *, edited: set[str] | None = None, only_main: bool = False) -> None:
        """Begin to bring every agent to what is wanted; returns at once."""
        if self._is_closed:
            return
        edited = edited or set()
        for entry in self._roster.present():
            spec = self.snapshot.find(entry.name)
            if spec is None or (only_main and not spec.is_main):
                continue
            unit = self._fleet.get(entry.agent_id)
            if unit is None:
                unit = self._fleet.add(entry.agent_id, spec)
            else:
                self._fleet.update(unit, spec)
            self.wake(unit, was_edited=spec.name in edited)
        for unit in self._fleet.units():
            if not self._is_declared(unit):
                self.wake(unit, was_edited=True)

    def wake(self, unit: Unit, *, was_edited: bool = False) -> asyncio.Task[None]:
        """Begin to bring one agent to what is wanted; the task goes on whoever waits for it."""
        self._name_pending(unit)
        self.connect(unit, retry=was_edited)
        return self._tasks.spawn(
            self.converge(unit, was_edited=was_edited), name=f"converge:{unit.spec.name}"
        )

    def connect(self, unit: Unit, *, retry: bool = False) -> None:
        """Have the channel that the agent's entry asks for. ``retry``: also one that had failed."""
        is_up = self._is_declared(unit) and self.is_wanted_up(unit)
        self._channels.match(unit.agent_id, unit.spec, is_up=is_up, retry=retry)

    async def converge(self, unit: Unit, *, was_edited: bool = False) -> None:
        """Bring one agent to what is wanted now. Level-triggered: it may be called at any time."""
        async with unit.lock:
            await self._converge(unit, was_edited=was_edited)
            # After the stack, so that the answers of its last turns still find their way out.
            await self._channels.release(unit.agent_id)

    async def _converge(self, unit: Unit, *, was_edited: bool) -> None:
        child = unit.child
        if not self._is_declared(unit):
            await child.stop()
            # It may have come back while it drained; it is the same agent then.
            if not self._is_declared(unit):
                self._on_removed(unit.agent_id)
                self._fleet.remove(unit.agent_id)
                return
            unit.pending = ""
        if self._is_closed or self._fleet.get(unit.agent_id) is not unit:
            return
        if not self.is_wanted_up(unit):
            await child.stop()
            unit.pending = ""
            return
        if child.state is AgentState.STOPPED or (
            was_edited and child.state in (AgentState.FAILED, AgentState.BACKOFF)
        ):
            child.start()
        elif self.rebuild_fields(unit):
            await child.restart()
        else:
            unit.pending = ""

    def _name_pending(self, unit: Unit) -> None:
        is_down = unit.child.state in (AgentState.STOPPED, AgentState.FAILED)
        if not self._is_declared(unit):
            unit.pending = "removed; draining"
        elif not self.is_wanted_up(unit):
            unit.pending = "" if is_down else "stopping; draining"
        elif fields := self.rebuild_fields(unit):
            unit.pending = f"rebuild pending: {', '.join(fields)}"

    def is_wanted_up(self, unit: Unit) -> bool:
        """Declared, enabled and not stopped by an operator."""
        return is_wanted_up(self._roster.entry(unit.spec.name), unit.spec)

    def rebuild_fields(self, unit: Unit) -> tuple[str, ...]:
        """Fields in which the wanted spec differs from the running one and that need a rebuild."""
        if unit.built is None or unit.stack is None or unit.built == unit.spec:
            return ()
        changes = diff_specs(unit.built, unit.spec)
        fields = tuple(path for path, c in changes.items() if takes_rebuild(c.cls))
        if not fields and self._engine_of(unit.spec) != unit.engine:
            return ("engine",)  # "auto" chooses another one since a live field changed
        return fields

    def _is_declared(self, unit: Unit) -> bool:
        return any(entry.agent_id == unit.agent_id for entry in self._roster.present())


def keep_applied(home: Home, snapshot: ConfigSnapshot) -> None:
    """Copy the declared files as applied, for a start that meets a broken edit. Blocks.

    A file that was saved again since ``snapshot`` read it is left to the reload of that edit: what
    is kept here has been found valid.
    """
    applied = AppliedHome(home.root)
    applied.agents_json.parent.mkdir(exist_ok=True)
    for source, target in (
        (home.agents_json, applied.agents_json),
        (home.config_toml, applied.config_toml),
    ):
        try:
            data: bytes | None = read_plain(source, MAX_BYTES + 1)
        except FileNotFoundError:
            data = None
        if content_hash(data) != snapshot.file_hashes.get(source.name):
            continue
        if data is None:
            target.unlink(missing_ok=True)
        else:
            write_atomic(target, data, mode=0o600)


async def first_snapshot(
    home: Home, overrides: Overrides, files: ConfigFiles
) -> tuple[ConfigSnapshot, ConfigErrors | None]:
    """The snapshot to start with: the files, or what was applied last where they are wrong.

    Raises ``ConfigErrors`` when the files are wrong and nothing was ever applied.
    """
    try:
        return await read_config(files, home, overrides, is_start=True), None
    except ConfigErrors as error:
        applied = AppliedHome(home.root)
        if not applied.agents_json.parent.exists():
            raise
        return await read_config(files, applied, overrides, is_start=True), error
