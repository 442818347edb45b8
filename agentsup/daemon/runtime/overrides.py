"""An operator's overrides: fields of an agent that are set or cleared without an edit of a file.

Chat, HTTP and the command line all use this. A value without effect is refused with the reason. An
accepted one is stored before it is applied, and ends when its field is edited in a file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from agentsup.agents.recovery import FALLBACK, fallback_name
from agentsup.config import (
    OVERRIDABLE,
    ConfigSnapshot,
    build_spec,
    choices,
    field_problem,
    leaves,
    raises_rights,
)
from agentsup.daemon.runtime.engines import DaemonEngines, ProviderModels
from agentsup.daemon.runtime.reconcile import Reconciler
from agentsup.daemon.runtime.roster import Roster
from agentsup.kit.log import get_logger
from agentsup.model.agent import AgentSpec, field_info
from agentsup.model.control import OverridableField
from agentsup.model.errors import BadRequest, Conflict, Forbidden
from agentsup.model.principal import Principal

_log = get_logger(__name__)

RoleProblem = Callable[[str], Awaitable[str]]
"""Returns why an agent can't take the role of that name; empty if it can."""


class OverrideService:
    """Sets, clears and shows overrides."""

    def __init__(
        self,
        roster: Roster,
        reconciler: Reconciler,
        engines: DaemonEngines,
        role_problem: RoleProblem,
        models: ProviderModels,
    ) -> None:
        self._roster = roster
        self._reconciler = reconciler
        self._engines = engines
        self._role_problem = role_problem
        self._models = models
        self._lock = asyncio.Lock()

    def fields(self, name: str) -> tuple[OverridableField, ...]:
        """Every field that may be overridden, with its current value. Raises ``NotFound``."""
        entry = self._roster.entry(name)
        snapshot = self._reconciler.snapshot
        return tuple(_shown(snapshot, entry.name, path) for path in OVERRIDABLE)

    async def set(self, name: str, field: str, value: Any, by: Principal) -> OverridableField:
        """Override ``field`` with ``value``; None removes the override.

        Raises ``Forbidden`` for anybody but an operator, ``BadRequest`` for a wrong field or value,
        and ``Conflict`` if the value would have no effect, or takes effect only once the files are
        corrected.
        """
        if not by.is_operator:
            raise Forbidden("only an operator overrides a field of an agent", field=field)
        name, unchecked = self._roster.entry(name).name, ""
        if field == "model" and isinstance(value, str):
            # Before the lock: a slow provider must not hold up other overrides.
            unchecked = await self._models.check(self._reconciler.snapshot.require(name), value)
        async with self._lock:
            return replace(await self._set(name, field, value, by), unchecked=unchecked)

    async def _set(self, name: str, field: str, value: Any, by: Principal) -> OverridableField:
        snapshot = self._reconciler.snapshot
        before = leaves(snapshot.require(name)).get(field)
        override = None
        if value is not None:
            after = value
            override = snapshot.override(name, field, value)
            await self._check_effect(name, field, value)
        elif problem := field_problem(field):
            raise BadRequest(problem, field=field)
        else:
            after = leaves(build_spec(snapshot.declared[name].values)).get(field)
        remaining = dict(self._roster.entry(name).overrides)
        remaining.pop(field, None)
        if override is not None:
            remaining[field] = override
        await self._roster.set_overrides(name, remaining)
        is_raise = raises_rights(field, before, after)
        log = _log.warning if is_raise else _log.info
        log("override", agent=name, field=field, value=value, by=by.label, raises_rights=is_raise)
        if not await self._reconciler.reload():
            raise Conflict(
                f"{field} of {name} is noted, and takes effect once the files are mended: "
                f"{self._reconciler.config_error}",
                agent=name,
            )
        found = _shown(self._reconciler.snapshot, name, field)
        return replace(found, before=before, raises_rights=is_raise)

    async def _check_effect(self, name: str, field: str, value: Any) -> None:
        """Raise ``Conflict`` if the agent could not work with the value, or if it would have no
        effect."""
        spec = _with(self._reconciler.snapshot.require(name), field, value)
        problem = self._engines.refusal(spec, field)
        if field == "role":
            problem = await self._role_problem(value)
        elif field == "model_tier" and value == FALLBACK and not fallback_name(spec):
            problem = "there is no fallback; set fallback_model in agents.json"
        if problem:
            raise Conflict(f"{field} of {name} is not changed: {problem}", agent=name, field=field)


def _with(spec: AgentSpec, path: str, value: Any) -> AgentSpec:
    block, dot, key = path.partition(".")
    if dot:
        value = replace(getattr(spec, block), **{key: value})
    return replace(spec, **{block: value})


def _shown(snapshot: ConfigSnapshot, name: str, path: str) -> OverridableField:
    spec = snapshot.require(name)
    origin = snapshot.explained[spec.name].origin(path)
    info = field_info(path)
    value = leaves(spec)[path]
    return OverridableField(
        agent=spec.name,
        field=path,
        value=value,
        origin=origin.named(path),
        takes=info.cls.value,
        doc=info.doc,
        choices=choices(path),
        before=value,
    )
