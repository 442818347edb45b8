"""Chooses the agent that gets work which needs capabilities, and records the choice.

A choice is made in memory, on a snapshot of the loads, and counts as load of the chosen agent at
once; so simultaneous callers spread over several agents. Their records share a commit, and each of
them has its answer once its own record is durable (P1, P2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from agentsup.agents.delegation import service
from agentsup.agents.delegation.ranking import (
    Candidate,
    Candidates,
    Match,
    Ranking,
    RouteQuery,
    RouteSnapshot,
    best,
    rank,
)
from agentsup.agents.delegation.service import DelegatingTurn, DelegationServices
from agentsup.agents.recovery.breakers import BreakerPolicy, Breakers
from agentsup.kit.clock import Clock
from agentsup.mailbox.mail import DirectoryEntry, entries_of
from agentsup.model.errors import NotFound
from agentsup.model.event import EventType
from agentsup.model.health import AgentState
from agentsup.store import Tx, append, created_at, route_of_call

_ASSUMED_HEARTBEAT_S = {AgentState.RUNNING.value: 0.0, AgentState.DEGRADED.value: 20.0}
"""The age of heartbeat, in seconds, that is assumed for an agent of this process by its state.

The agent is alive in both states, but a degraded one shall rank after the others.
"""
_BREAKER = "agent:"


class Router:
    """Ranks this node's agents for a piece of work."""

    def __init__(self, services: DelegationServices, clock: Clock) -> None:
        self._s = services
        self._clock = clock
        self.breakers = Breakers(clock, BreakerPolicy(failures=3))
        """One per agent, named ``agent:<id>``. It opens after three failures in a row."""
        self._reserved: dict[str, str] = {}
        """Call to the id of the agent chosen for it, until the work is in a mailbox."""
        self._reserved_of: Counter[str] = Counter()
        self._entries: tuple[DirectoryEntry, ...] = ()
        self._candidates = Candidates.of(())
        """Those of ``_entries``."""

    async def choose(
        self,
        caller: DelegatingTurn,
        call: str,
        needs: tuple[str, ...],
        match: Match,
    ) -> Ranking:
        """The ranking for ``needs``, recorded under ``call``.

        A repeated call gets the recorded one. Until ``placed``, the work counts as load of the
        first agent, so that simultaneous callers spread over several agents. Raises ``NotFound``,
        with each agent's reason, if no agent can be given the work.
        """
        entries = entries_of(self._s.directory)
        if entries != self._entries:
            since = await self._s.database.read(created_at, name="route.since")
            self._candidates = Candidates.of(_candidate(each, since) for each in entries)
            self._entries = entries
        barred = self._barred(caller)
        query = RouteQuery.of(needs, match, asker=caller.message.agent_id, barred=barred)
        snapshot = self._snapshot()
        self._reserve(call, best(query, snapshot))

        def record(tx: Tx) -> Ranking:
            return self._record_tx(tx, caller, call, needs, query, snapshot)

        ranking = await self._s.database.write(record, name="route.choose")
        if not ranking.ranked:
            why = "; ".join(f"{candidate.agent} {candidate.reason}" for candidate in ranking.out)
            raise NotFound(
                f"no agent can be given work that needs {', '.join(needs) or 'nothing special'}: "
                f"{why or 'there are no others'}",
                needs=list(needs),
            )
        return ranking

    def placed(self, call: str) -> None:
        """End the reservation: the work of ``call`` is in a mailbox now, or will not be given."""
        agent_id = self._reserved.pop(call, None)
        if agent_id is not None:
            self._reserved_of[agent_id] -= 1

    def breaker(self, agent_id: str) -> str:
        """The name of an agent's breaker."""
        return f"{_BREAKER}{agent_id}"

    # -- inside --------------------------------------------------------------------------------------

    def _reserve(self, call: str, first: Candidate | None) -> None:
        self.placed(call)
        if first is not None:
            self._reserved[call] = first.agent_id
            self._reserved_of[first.agent_id] += 1

    def _snapshot(self) -> RouteSnapshot:
        loads = dict(self._s.loads.open)
        for agent_id, count in self._reserved_of.items():
            if count:
                loads[agent_id] = loads.get(agent_id, 0) + count
        waits_s = {name.removeprefix(_BREAKER): s for name, s in self.breakers.waits_s().items()}
        return RouteSnapshot.of(self._candidates, loads, waits_s)

    def _barred(self, caller: DelegatingTurn) -> dict[str, str]:
        """Why agents can't get work from this caller."""
        barred: dict[str, str] = {}
        if any(spec.can_delegate_to is not None for spec in caller.specs):
            for each in self._entries:
                if any(service.why_not_ask(spec, each.name) for spec in caller.specs):
                    barred[each.agent_id] = "is not in can_delegate_to"
        for agent_id in caller.message.path:
            barred[agent_id] = "waits for this very work"
        return barred

    def _record_tx(
        self,
        tx: Tx,
        caller: DelegatingTurn,
        call: str,
        needs: tuple[str, ...],
        query: RouteQuery,
        snapshot: RouteSnapshot,
    ) -> Ranking:
        """Record the choice with all reasons; a call that is known gets what was recorded first."""
        message = caller.message
        known = route_of_call(tx, message.message_id, call)
        if known is not None:
            return Ranking.from_json(known)
        ranking = rank(query, snapshot)
        first = ranking.ranked[0] if ranking.ranked else None
        append(
            tx,
            EventType.ROUTE_CHOSEN,
            at=self._clock.now_ms(),
            agent_id=message.agent_id,
            session_id=message.session_id,
            message_id=message.message_id,
            data={
                "deed": "route",
                "call": call,
                "by": caller.owner.name,
                "needs": list(needs),
                "match": query.match.value,
                "agent": first.agent if first else "",
                "reason": first.reason if first else "nobody is in question",
                **ranking.to_json(),
            },
        )
        return ranking


def _candidate(entry: DirectoryEntry, since: Mapping[str, int]) -> Candidate:
    return Candidate(
        entry.agent_id,
        entry.name,
        entry.capabilities,
        _ASSUMED_HEARTBEAT_S.get(entry.status),
        since.get(entry.agent_id, 0),
        "" if entry.is_up else f"is {entry.status}",
    )
