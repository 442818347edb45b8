"""The roster: which agents there are, by stable id, and what an operator decided about each.

A name keeps its ``agent_id`` across remove and re-add, so mail, sessions and history stay its own.
Desired state and overrides live in the store: an operator's stop is sticky until a start. The
directory is the roster with what the running daemon knows of each agent.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from agentsup.config import Override
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.mailbox.mail import DirectoryEntry, Subscribers, subscribers_of
from agentsup.model.agent import MAIN, AgentSpec
from agentsup.model.errors import Gone, NotFound
from agentsup.model.health import Desired
from agentsup.model.ids import AgentId
from agentsup.store import Database, Reader, Tx, agents


@dataclass(frozen=True, slots=True)
class RosterEntry:
    """One agent that this home knows or knew."""

    agent_id: AgentId
    name: str
    desired: Desired
    present: bool
    overrides: Mapping[str, Override]


class Roster:
    """The declared agents. Reads use memory; changes commit first."""

    def __init__(self, database: Database, clock: Clock, entropy: Entropy) -> None:
        self._database = database
        self._clock = clock
        self._entropy = entropy
        self._by_name: dict[str, RosterEntry] = {}
        # Turns ask for these, so none of them may cost more with more agents.
        self._by_id: dict[str, RosterEntry] = {}
        self._present: tuple[RosterEntry, ...] = ()
        self._names: tuple[str, ...] = ()
        self._specs: dict[str, AgentSpec] = {}
        self.watchers: Subscribers = {}
        """The subscribers to each agent's work, by the ``agent_id`` of that agent."""

    async def load(self) -> None:
        """Read the table. Called once, at the start."""

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
                for r in agents.all_rows(reader)
            ]

        self._put(await self._database.read(rows))

    def _put(self, entries: Iterable[RosterEntry]) -> None:
        self._by_name |= {entry.name.casefold(): entry for entry in entries}
        self._by_id = {entry.agent_id: entry for entry in self._by_name.values()}
        found = [entry for entry in self._by_name.values() if entry.present]
        self._present = tuple(sorted(found, key=lambda e: (e.name != MAIN, e.name)))
        self._names = tuple(entry.name for entry in self._present)

    async def take_over(self, specs: Mapping[str, AgentSpec]) -> None:
        """Match the roster to the declared agents: new names get an id, others become absent."""
        wanted = {name.casefold(): spec for name, spec in specs.items()}
        now = self._clock.now_ms()
        changed: dict[str, RosterEntry] = {}
        for key, spec in wanted.items():
            known = self._by_name.get(key)
            if known is None:
                agent_id = AgentId(self._entropy.new_id("agt"))
                changed[key] = RosterEntry(agent_id, spec.name, Desired.UP, True, {})
            elif not known.present or known.name != spec.name:
                # An agent that is declared again is wanted up: its stop ended with its removal.
                desired = known.desired if known.present else Desired.UP
                changed[key] = replace(known, name=spec.name, present=True, desired=desired)
        for key, known in self._by_name.items():
            if known.present and key not in wanted:
                changed[key] = replace(known, present=False)
        if changed:
            await self._database.write(
                lambda tx: _store(tx, changed.values(), now), name="roster.take_over"
            )
            self._put(changed.values())
        self._specs = {spec.name.casefold(): spec for spec in specs.values()}
        self.watchers = subscribers_of(
            {self.entry(name).agent_id: spec for name, spec in specs.items()}
        )

    async def set_desired(self, name: str, desired: Desired) -> None:
        """Store an operator's start or stop; durable when it returns."""
        await self._change(replace(self.entry(name), desired=desired))

    async def set_overrides(self, name: str, overrides: Mapping[str, Override]) -> None:
        """Store the operator's overrides of an agent's fields; durable when it returns."""
        await self._change(replace(self.entry(name), overrides=dict(overrides)))

    async def _change(self, entry: RosterEntry) -> None:
        now = self._clock.now_ms()
        await self._database.write(_store, (entry,), now, name="roster.change")
        self._put((entry,))

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
        """The declared agents, main first, then by name."""
        return self._present

    def name_of(self, agent_id: str) -> str:
        found = self._by_id.get(agent_id)
        return found.name if found is not None else agent_id

    def by_id(self, agent_id: str) -> RosterEntry | None:
        """The entry of a declared agent."""
        found = self._by_id.get(agent_id)
        return found if found is not None and found.present else None

    def spec_of(self, entry: RosterEntry) -> AgentSpec | None:
        """The spec with which the agent was last declared."""
        return self._specs.get(entry.name.casefold())

    def is_wanted_up(self, entry: RosterEntry) -> bool:
        """Enabled and not stopped by an operator."""
        spec = self.spec_of(entry)
        return is_wanted_up(entry, spec) if spec else entry.desired is Desired.UP

    def names(self) -> tuple[str, ...]:
        """The names of the declared agents; the same tuple until one is added or removed."""
        return self._names

    def _present_keys(self) -> list[str]:
        return [k for k, e in self._by_name.items() if e.present]


def is_wanted_up(entry: RosterEntry, spec: AgentSpec) -> bool:
    """Declared, enabled and not stopped by an operator; main always."""
    return spec.is_main or (spec.enabled and entry.desired is Desired.UP)


def _store(tx: Tx, entries: Iterable[RosterEntry], now: int) -> None:
    for entry in entries:
        overrides = {k: {"value": o.value, "base": o.base} for k, o in entry.overrides.items()}
        agents.put_tx(
            tx,
            entry.agent_id,
            entry.name,
            desired=entry.desired.value,
            is_present=entry.present,
            overrides=json.dumps(overrides),
            at=now,
        )


@dataclass(frozen=True, slots=True, eq=False)
class RosterDirectory:
    """Implements ``mailbox.mail.AgentDirectory``."""

    roster: Roster
    status: Callable[[str], tuple[str, str]]
    """Returns the actual state and the last reason of an agent, by its id."""
    role_problem: Callable[[str], str] = lambda _: ""
    """Returns why no agent can take the role of that name, or an empty string."""
    _made: dict[str, tuple[tuple[Any, ...], DirectoryEntry]] = field(default_factory=dict)
    """The last entry of each agent with what it was made of: a choice looks at all agents."""

    def lookup(self, name: str) -> DirectoryEntry:
        return self._entry(self.roster.entry(name))

    def by_id(self, agent_id: str) -> DirectoryEntry | None:
        found = self.roster.by_id(agent_id)
        return self._entry(found) if found is not None else None

    def names(self) -> tuple[str, ...]:
        return self.roster.names()

    def name_of(self, agent_id: str) -> str:
        return self.roster.name_of(agent_id)

    def _entry(self, entry: RosterEntry) -> DirectoryEntry:
        status, reason = self.status(entry.agent_id)
        spec = self.roster.spec_of(entry)
        problem = self.role_problem(spec.role) if spec and spec.role else ""
        made_of = (entry, spec, status, reason, problem)
        known = self._made.get(entry.agent_id)
        if known is None or known[0] != made_of:
            made = self._make(entry, spec, status, reason, problem)
            self._made[entry.agent_id] = known = (made_of, made)
        return known[1]

    def _make(
        self, entry: RosterEntry, spec: AgentSpec | None, status: str, reason: str, problem: str
    ) -> DirectoryEntry:
        return DirectoryEntry(
            agent_id=entry.agent_id,
            name=entry.name,
            status=status,
            last_reason=reason,
            can_delegate_to=spec.can_delegate_to if spec else None,
            description=spec.description if spec else "",
            is_wanted_up=self.roster.is_wanted_up(entry),
            nickname=spec.called if spec else entry.name,
            role=(spec.role or "") if spec else "",
            role_problem=problem,
            team=(spec.team or "") if spec else "",
            capabilities=spec.capabilities if spec else (),
        )
