"""An operator's overrides: a field of an agent set or cleared without an edit of a file.

One way for chat, HTTP and the command line. What would have no effect is refused with the reason;
what is taken is stored before it is applied, and ends when its field is edited in a file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from agentsup.agents.recovery.decisions import FALLBACK
from agentsup.agents.recovery.tiers import fallback_name
from agentsup.config.merge import build_spec, leaves
from agentsup.config.overriding import OVERRIDABLE, choices, field_problem, raises_rights
from agentsup.config.snapshot import ConfigSnapshot
from agentsup.daemon.engines import DaemonEngines
from agentsup.daemon.reconcile import Reconciler
from agentsup.daemon.roster import Roster
from agentsup.model.agent import AgentSpec, field_info
from agentsup.model.control import OverridableField
from agentsup.model.errors import BadRequest, Conflict, Forbidden
from agentsup.model.principal import Principal
from agentsup.observe.logging import get_logger

_log = get_logger(__name__)

RoleProblem = Callable[[str], Awaitable[str]]
"""Why an agent can't be in the role of that name; empty where it can."""


class Overriding:
    """Sets, clears and shows what may be overridden."""

    def __init__(
        self,
        roster: Roster,
        reconciler: Reconciler,
        engines: DaemonEngines,
        role_problem: RoleProblem,
    ) -> None:
        self._roster = roster
        self._reconciler = reconciler
        self._engines = engines
        self._role_problem = role_problem
        self._lock = asyncio.Lock()

    def fields(self, name: str) -> tuple[OverridableField, ...]:
        """Every field that may be overridden, as it is now. Raises ``NotFound``."""
        entry = self._roster.entry(name)
        snapshot = self._reconciler.snapshot
        return tuple(_shown(snapshot, entry.name, path) for path in OVERRIDABLE)

    async def set(self, name: str, field: str, value: Any, by: Principal) -> OverridableField:
        """Override ``field`` with ``value``, or with None let the files say it again.

        Raises ``Forbidden`` for anybody but an operator, ``BadRequest`` for a field or a value that
        can't be, ``Conflict`` where it would have no effect, or waits for the files to be mended.
        """
        if not by.is_operator:
            raise Forbidden("only an operator overrides a field of an agent", field=field)
        async with self._lock:
            return await self._set(self._roster.entry(name).name, field, value, by)

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
        kept = dict(self._roster.entry(name).overrides)
        kept.pop(field, None)
        if override is not None:
            kept[field] = override
        await self._roster.set_overrides(name, kept)
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
        """Raise ``Conflict`` where the agent could not work with it, or nothing would hear of it."""
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
