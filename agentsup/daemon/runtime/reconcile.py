"""Reconcile: make what runs equal to what is declared, after an edit, a command or a start (P4).

Every pass compares the declared agents and the operators' decisions with what runs, and changes
only the difference. Each agent is brought in line in a task of its own under its own lock: a slow
drain delays no other agent, and of ten saves in a row the last one counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from agentsup.config import (
    MAX_BYTES,
    AppliedHome,
    ChangePlan,
    ConfigFiles,
    ConfigSnapshot,
    Home,
    Overrides,
    content_hash,
    diff,
    diff_settings,
    diff_specs,
    load,
    read_config,
    replace_settings,
    settings_bytes,
    takes_rebuild,
)
from agentsup.daemon.runtime.alarm import Alarm
from agentsup.daemon.runtime.boot_context import BootContext, redact_secrets
from agentsup.daemon.runtime.channels import Channels
from agentsup.daemon.runtime.edit_news import edited_line, news_of
from agentsup.daemon.runtime.ending import Ending
from agentsup.daemon.runtime.engines import DaemonEngines
from agentsup.daemon.runtime.fleet import Fleet, FleetUnit
from agentsup.daemon.runtime.roster import is_wanted_up
from agentsup.daemon.runtime.scripts import ScriptCheck
from agentsup.kit.files import write_atomic
from agentsup.kit.log import get_logger, set_level
from agentsup.kit.safe_files import read_plain
from agentsup.kit.tasks import TaskOwner
from agentsup.model.errors import ConfigError, ConfigErrors, NotFound
from agentsup.model.event import EventType
from agentsup.model.health import AgentState
from agentsup.store import append

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ReconcilerParts:
    """The parts of the daemon that are brought in line, and those that hear of it."""

    ending: Ending
    fleet: Fleet
    channels: Channels
    engines: DaemonEngines
    alarm: Alarm
    tasks: TaskOwner
    on_snapshot: Callable[[ConfigSnapshot], None]
    """Called with each new snapshot, once it is in effect."""
    on_removed: Callable[[str], None]
    """Releases what else belongs to an agent, by its id."""


class Reconciler:
    """Holds the current snapshot and brings the fleet in line with it."""

    def __init__(self, boot_context: BootContext, parts: ReconcilerParts) -> None:
        self.files = boot_context.config_files
        self.scripts = boot_context.scripts
        self.snapshot = boot_context.snapshot
        self._boot_context = boot_context
        self._parts = parts
        self._lock, self._editing = asyncio.Lock(), asyncio.Lock()
        self.config_error = ""
        self._started = boot_context.snapshot.settings

    @property
    def needs_restart(self) -> tuple[str, ...]:
        """Settings that were edited since the start and take effect at the next one."""
        return ChangePlan(
            settings=diff_settings(self._started, self.snapshot.settings)
        ).needs_restart

    # -- edits -------------------------------------------------------------------------------------

    async def reload(self) -> bool:
        """Read the files again and apply the difference; False if they are wrong.

        Returns once everything is decided: live fields are in effect, starts and drains have begun.
        """
        async with self._lock:
            began_s = self._boot_context.clock.monotonic()
            try:
                new = await read_config(
                    self.files,
                    self._boot_context.home,
                    self._boot_context.roster.overrides(),
                    previous=self.snapshot,
                    checks=(self.scripts,),
                    environ=self._boot_context.environ,
                )
            except ConfigErrors as error:
                await self.complain(error)
                return False
            mended = bool(self.config_error)
            self.config_error = ""
            plan, before = diff(self.snapshot, new), self.snapshot
            await self._apply(plan, new)
            took_ms = (self._boot_context.clock.monotonic() - began_s) * 1000
            if mended:
                await self._parts.alarm.tell("The configuration is valid again and was applied.")
            for text in news_of(plan, before, new):
                await self._parts.alarm.tell(text)
            if not plan.is_empty or mended:
                await self._record_applied(plan, took_ms)
                await self._keep(new)
            if line := edited_line(plan):
                await self._parts.alarm.note(line)
            return True

    def checked(self, name: str, content: bytes) -> ConfigSnapshot:
        """The configuration that would result if the file ``name`` had ``content``. Blocks. Raises
        ``ConfigErrors``."""
        context = self._boot_context
        return load(
            context.home,
            context.roster.overrides(),
            previous=self.snapshot,
            environ=context.environ,
            checks=(self.scripts,),
            content={name: content},
        )

    async def edit_settings(
        self,
        change: Callable[[str], str],
        *,
        secrets: Mapping[str, str] = MappingProxyType({}),
        check: Callable[[ConfigSnapshot], None] = lambda after: None,
    ) -> None:
        """Change the text of config.toml, if it stays right, and apply it; one edit at a time.

        ``check`` gets what the new text means. The secrets are kept in files of these names before
        the text can name them. Raises ``ConfigError``, ``ConfigErrors``, ``Conflict``, and what
        ``change`` and ``check`` raise.
        """
        home = self._boot_context.home

        def write() -> None:
            old = settings_bytes(home)
            new = change((old or b"").decode()).encode()
            check(self.checked(home.config_toml.name, new))
            keep_secrets(home.secrets, secrets)
            replace_settings(home, old, new)

        async with self._editing:
            await self.edit(home.config_toml.name, write)

    async def edit(self, name: str, write: Callable[[], None]) -> None:
        """Apply an edit of the file of that name, which ``write`` makes (blocking). Raises
        ``ConfigError``, and what ``write`` raises."""
        try:
            await self.files.run(write, key=f"{name} edit")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{name} can't be written: {error}") from None
        if not await self.reload():
            raise ConfigError(f"{name} was written, but is not applied; see /agent_diff")

    async def _keep(self, applied: ConfigSnapshot) -> None:
        step = partial(keep_applied, self._boot_context.home, applied)
        try:
            await self.files.run(step, key="applied")
        except OSError as error:
            _log.warning("what was applied could not be kept", reason=error.strerror or str(error))

    async def complain(self, error: ConfigErrors) -> None:
        """Report what is wrong and where; the same text only once in a row."""
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
        now = self._boot_context.clock.now_ms()
        await self._boot_context.database.write(
            lambda tx: append(tx, EventType.CONFIG_REFUSED, at=now, data={"error": text}),
            name="config.refused",
        )
        await self._parts.alarm.tell(
            f"An edit was not applied; everything stays as it was:\n{text}"
        )

    async def _apply(self, plan: ChangePlan, new: ConfigSnapshot) -> None:
        if plan.added or plan.removed or plan.changed:
            await self._boot_context.roster.take_over(new.specs)
        for cleared in plan.cleared:
            await self._clear_override(cleared.agent, cleared.field)
            await self._parts.alarm.tell(
                f"The override of {cleared.field} of {cleared.agent} ended: {cleared.reason}."
            )
        self.snapshot = new
        context = self._boot_context
        await redact_secrets(
            context.redactor, new, context.home.root, context.environ, context.config_files
        )
        context.current.apply(new)
        set_level(new.settings.log.level.upper())
        self._parts.on_snapshot(new)
        self.converge_all(edited={*plan.changed, *plan.added})

    async def _clear_override(self, name: str, field: str) -> None:
        try:
            entry = self._boot_context.roster.entry(name)
        except NotFound:
            return
        remaining = {path: value for path, value in entry.overrides.items() if path != field}
        await self._boot_context.roster.set_overrides(name, remaining)

    async def _record_applied(self, plan: ChangePlan, took_ms: float) -> None:
        now = self._boot_context.clock.now_ms()
        data: dict[str, Any] = {
            "added": list(plan.added),
            "removed": list(plan.removed),
            "changed": {name: list(changes) for name, changes in plan.changed.items()},
            "rebuild": list(plan.rebuild),
            "settings": list(plan.settings),
            "took_ms": round(took_ms, 1),
        }
        _log.info("configuration applied", **data)
        await self._boot_context.database.write(
            lambda tx: append(tx, EventType.CONFIG_APPLIED, at=now, data=data),
            name="config.applied",
        )

    # -- converging --------------------------------------------------------------------------------

    def converge_all(self, *, edited: set[str] | None = None, only_main: bool = False) -> None:
        """Begin to bring every agent to its wanted state; returns at once.

        Nothing is started once the daemon ends: what it stops must stay stopped.
        """
        if self._parts.ending.draining:
            return
        edited = edited or set()
        for entry in self._boot_context.roster.present():
            spec = self.snapshot.find(entry.name)
            if spec is None or (only_main and not spec.is_main):
                continue
            unit = self._parts.fleet.get(entry.agent_id)
            if unit is None:
                unit = self._parts.fleet.add(entry.agent_id, spec)
            else:
                self._parts.fleet.update(unit, spec)
            self.wake(unit, was_edited=spec.name in edited)
        for unit in self._parts.fleet.units():
            if not self._is_declared(unit):
                self.wake(unit, was_edited=True)

    def wake(self, unit: FleetUnit, *, was_edited: bool = False) -> asyncio.Task[None]:
        """Begin to bring one agent to its wanted state; the task goes on without its caller."""
        self._name_pending(unit)
        self.connect(unit, retry=was_edited)
        return self._parts.tasks.spawn(
            self.converge(unit, was_edited=was_edited), name=f"converge:{unit.spec.name}"
        )

    def connect(self, unit: FleetUnit, *, retry: bool = False) -> None:
        """Start the bots that the agent's entry asks for. ``retry``: also one that had failed."""
        is_up = self._is_declared(unit) and self.is_wanted_up(unit)
        self._parts.channels.match(unit.agent_id, unit.spec, is_up=is_up, retry=retry)

    async def converge(self, unit: FleetUnit, *, was_edited: bool = False) -> None:
        """Bring one agent to its wanted state. Level-triggered: it may be called at any time."""
        async with unit.lock:
            await self._converge(unit, was_edited=was_edited)
            # After the stack, so that the answers of its last turns are still delivered.
            await self._parts.channels.release(unit.agent_id)

    async def _converge(self, unit: FleetUnit, *, was_edited: bool) -> None:
        child = unit.child
        if not self._is_declared(unit):
            await child.stop()
            # It may have been declared again while it drained; it is the same agent then.
            if not self._is_declared(unit):
                self._boot_context.tokens.revoke_agent(unit.agent_id)
                self._parts.on_removed(unit.agent_id)
                self._parts.fleet.remove(unit.agent_id)
                return
            unit.pending = ""
        if self._parts.ending.draining or self._parts.fleet.get(unit.agent_id) is not unit:
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

    def _name_pending(self, unit: FleetUnit) -> None:
        is_down = unit.child.state in (AgentState.STOPPED, AgentState.FAILED)
        if not self._is_declared(unit):
            unit.pending = "removed; draining"
        elif not self.is_wanted_up(unit):
            unit.pending = "" if is_down else "stopping; draining"
        elif fields := self.rebuild_fields(unit):
            unit.pending = f"rebuild pending: {', '.join(fields)}"

    def is_wanted_up(self, unit: FleetUnit) -> bool:
        """Declared, enabled and not stopped by an operator."""
        return is_wanted_up(self._boot_context.roster.entry(unit.spec.name), unit.spec)

    def rebuild_fields(self, unit: FleetUnit) -> tuple[str, ...]:
        """Fields in which the wanted spec differs from the running one and that need a rebuild."""
        if unit.built is None or unit.stack is None or unit.built == unit.spec:
            return ()
        changes = diff_specs(unit.built, unit.spec)
        fields = tuple(path for path, c in changes.items() if takes_rebuild(c.cls))
        if not fields and self._parts.engines.choice(unit.spec)[0] != unit.engine:
            return ("engine",)  # "auto" now chooses another engine, after a change of a live field
        return fields

    def _is_declared(self, unit: FleetUnit) -> bool:
        return any(entry.agent_id == unit.agent_id for entry in self._boot_context.roster.present())


def keep_secrets(folder: Path, secrets: Mapping[str, str]) -> None:
    """Write each secret into a file that only its owner reads. Raises ``OSError``."""
    if secrets:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, secret in secrets.items():
        write_atomic(folder / name, f"{secret}\n".encode(), mode=0o600)


def keep_applied(home: Home, snapshot: ConfigSnapshot) -> None:
    """Copy the declared files as applied, for a start at which an edit is broken. Blocks.

    A file that was saved again since ``snapshot`` read it is skipped, and the reload of that edit
    copies it: only valid files are copied.
    """
    applied = AppliedHome(home.root)
    applied.agents_json.parent.mkdir(mode=0o700, exist_ok=True)
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
    home: Home,
    overrides: Overrides,
    files: ConfigFiles,
    scripts: ScriptCheck | None = None,
    environ: Mapping[str, str] | None = None,
) -> tuple[ConfigSnapshot, ConfigErrors | None]:
    """The snapshot to start with: from the files, or if they are wrong from those applied last.

    Raises ``ConfigErrors`` if the files are wrong and none were ever applied.
    """
    read = partial(read_config, is_start=True, checks=(scripts or ScriptCheck(),), environ=environ)
    try:
        return await read(files, home, overrides), None
    except ConfigErrors as error:
        applied = AppliedHome(home.root)
        if not applied.applied.exists():
            raise
        return await read(files, applied, overrides), error
