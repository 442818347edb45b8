"""The roster: which agents there are, by stable id, and what an operator decided about each.

A name keeps its ``agent_id`` across remove and re-add, so mail, sessions and history stay its own.
Desired state and overrides live in the store: an operator's stop is sticky until a start.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from agentsup.config.snapshot import Override
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.mailbox.bus import DirectoryEntry
from agentsup.mailbox.subscriptions import Watchers, watchers_of
from agentsup.model.agent import MAIN, AgentSpec
from agentsup.model.errors import Gone, NotFound
from agentsup.model.health import AgentState, Desired
from agentsup.model.ids import AgentId
from agentsup.store.database import Database, Reader, Tx


@dataclass(frozen=True, slots=True)
class RosterEntry:
    """One agent that this home knows or knew."""

    agent_id: AgentId
    name: str
    desired: Desired
    present: bool
    overrides: Mapping[str, Override]


class Roster:
    """Implements ``mailbox.bus.AgentDirectory``. Reads are from memory; changes commit first."""

    def __init__(self, database: Database, clock: Clock, entropy: Entropy) -> None:
        self._database = database
        self._clock = clock
        self._entropy = entropy
        self._by_name: dict[str, RosterEntry] = {}
        self._specs: dict[str, AgentSpec] = {}
        self._status: Callable[[str], tuple[str, str]] = lambda _: (AgentState.STOPPED, "")
        self._role_problem: Callable[[str], str] = lambda _: ""
        self.watchers: Watchers = {}
        """Who hears of whose work, by the ``agent_id`` that is watched."""

    def watch_status(self, status: Callable[[str], tuple[str, str]]) -> None:
        """``status(agent_id)`` gives the actual state and the last reason."""
        self._status = status

    def watch_roles(self, problem_of: Callable[[str], str]) -> None:
        """``problem_of(role)`` says why nobody can be in it, or nothing."""
        self._role_problem = problem_of

    async def load(self) -> None:
        """Read the table; once, at the start."""

        def rows(reader: Reader) -> list[RosterEntry]:
            return [
                RosterEntry(
                    AgentId(r["agent_id"]),
                    r["name"],
                    Desired(r["desired"]),
                    bool(r["present"]),
                    {
                        path: Override(each["value"], each["base"])
                        for path, each in json.loads(r["overrides"]).items()
                    },
                )
                for r in reader.all("SELECT * FROM agents")
            ]

        self._by_name = {e.name.casefold(): e for e in await self._database.read(rows)}

    async def take_over(self, specs: Mapping[str, AgentSpec]) -> None:
        """Make the roster fit the declared agents: new names get an id, missing ones are absent."""
        wanted = {name.casefold(): spec for name, spec in specs.items()}
        now = self._clock.now_ms()
        changed: dict[str, RosterEntry] = {}
        for key, spec in wanted.items():
            known = self._by_name.get(key)
            if known is None:
                agent_id = AgentId(self._entropy.new_id("agt"))
                changed[key] = RosterEntry(agent_id, spec.name, Desired.UP, True, {})
            elif not known.present or known.name != spec.name:
                # An entry that comes back is wanted up: its stop ended with its removal.
                desired = known.desired if known.present else Desired.UP
                changed[key] = replace(known, name=spec.name, present=True, desired=desired)
        for key, known in self._by_name.items():
            if known.present and key not in wanted:
                changed[key] = replace(known, present=False)
        if changed:
            await self._database.write(
                lambda tx: _store(tx, changed.values(), now), name="roster.take_over"
            )
            self._by_name.update(changed)
        self._specs = {spec.name.casefold(): spec for spec in specs.values()}
        self.watchers = watchers_of(
            {self.entry(name).agent_id: spec for name, spec in specs.items()}
        )

    async def set_desired(self, name: str, desired: Desired) -> None:
        """An operator's start or stop; durable before it returns."""
        await self._change(replace(self.entry(name), desired=desired))

    async def set_overrides(self, name: str, overrides: Mapping[str, Override]) -> None:
        """The operator's overrides of an agent's fields; durable before it returns."""
        await self._change(replace(self.entry(name), overrides=dict(overrides)))

    async def _change(self, entry: RosterEntry) -> None:
        now = self._clock.now_ms()
        await self._database.write(lambda tx: _store(tx, (entry,), now), name="roster.change")
        self._by_name[entry.name.casefold()] = entry

    # -- reading -----------------------------------------------------------------------------------

    def entry(self, name: str) -> RosterEntry:
        """The entry of a name, in any case. Raises ``NotFound`` or ``Gone``."""
        found = self._by_name.get(name.casefold())
        if found is None:
            near = difflib.get_close_matches(name.casefold(), self._present_keys(), n=1)
            suggestion = self._by_name[near[0]].name if near else None
            hint = f" Did you mean {suggestion}?" if suggestion else ""
            raise NotFound(
                f"there is no agent {name!r}.{hint} Agents: {', '.join(self.names()) or 'none'}",
                agent=name,
                did_you_mean=suggestion,
            )
        if not found.present:
            raise Gone(f"agent {found.name} was removed from agents.json", agent=found.name)
        return found

    def overrides(self) -> dict[str, Mapping[str, Override]]:
        """Overrides by agent name and field, as ``config.snapshot.load`` takes them."""
        return {e.name: e.overrides for e in self._by_name.values() if e.overrides}

    def present(self) -> tuple[RosterEntry, ...]:
        """Main first, then by name."""
        found = [e for e in self._by_name.values() if e.present]
        return tuple(sorted(found, key=lambda e: (e.name != MAIN, e.name)))

    def name_of(self, agent_id: str) -> str:
        return next((e.name for e in self._by_name.values() if e.agent_id == agent_id), agent_id)

    def lookup(self, name: str) -> DirectoryEntry:
        return self._directory_entry(self.entry(name))

    def by_id(self, agent_id: str) -> DirectoryEntry | None:
        found = next((e for e in self._by_name.values() if e.agent_id == agent_id), None)
        return self._directory_entry(found) if found is not None and found.present else None

    def names(self) -> tuple[str, ...]:
        return tuple(e.name for e in self.present())

    def _present_keys(self) -> list[str]:
        return [k for k, e in self._by_name.items() if e.present]

    def _directory_entry(self, entry: RosterEntry) -> DirectoryEntry:
        status, reason = self._status(entry.agent_id)
        spec = self._specs.get(entry.name.casefold())
        return DirectoryEntry(
            agent_id=entry.agent_id,
            name=entry.name,
            status=status,
            last_reason=reason,
            can_delegate_to=spec.can_delegate_to if spec else None,
            description=spec.description if spec else "",
            is_wanted_up=is_wanted_up(entry, spec) if spec else entry.desired is Desired.UP,
            nickname=spec.called if spec else entry.name,
            role=(spec.role or "") if spec else "",
            role_problem=self._role_problem(spec.role) if spec and spec.role else "",
            team=(spec.team or "") if spec else "",
            capabilities=spec.capabilities if spec else (),
        )


def is_wanted_up(entry: RosterEntry, spec: AgentSpec) -> bool:
    """Declared, enabled and not stopped by an operator; main always."""
    return spec.is_main or (spec.enabled and entry.desired is Desired.UP)


def _store(tx: Tx, entries: Iterable[RosterEntry], now: int) -> None:
    for entry in entries:
        tx.execute(
            "INSERT INTO agents (agent_id, name, desired, present, overrides, created_at)"
            " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (agent_id) DO UPDATE SET"
            " name = excluded.name, desired = excluded.desired, present = excluded.present,"
            " overrides = excluded.overrides,"
            " removed_at = CASE WHEN excluded.present = 1 THEN NULL ELSE ? END",
            (
                entry.agent_id,
                entry.name,
                entry.desired.value,
                int(entry.present),
                json.dumps(
                    {k: {"value": o.value, "base": o.base} for k, o in entry.overrides.items()}
                ),
                now,
                now,
            ),
        )
