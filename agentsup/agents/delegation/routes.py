"""Who gets work that needs a capability: the candidates as they are now, the choice on record."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

from agentsup.agents.delegation import permits
from agentsup.agents.delegation.desk import Caller, DelegationServices
from agentsup.agents.recovery.breaker import BreakerPolicy
from agentsup.agents.recovery.breakers import Breakers
from agentsup.kit.clock import Clock
from agentsup.mailbox.bus import DirectoryEntry
from agentsup.mailbox.reading import open_counts
from agentsup.model.errors import NotFound
from agentsup.model.event import EventType
from agentsup.model.health import AgentState
from agentsup.store.database import Reader, Tx
from agentsup.store.events import append
from agentsup.teams.routing import Candidate, Match, Ranking, rank

_RECORDED = (
    "SELECT data FROM events WHERE message_id = ? AND type = 'route.chosen'"
    " AND data ->> '$.call' = ? ORDER BY seq LIMIT 1"
)
_HEARD_S = {AgentState.RUNNING.value: 0.0, AgentState.DEGRADED.value: 20.0}
"""How old the heartbeat of an agent of this process counts, in seconds: it lives, but one that is
degraded comes after the others."""


class Router:
    """Ranks this node's agents for a piece of work."""

    def __init__(self, services: DelegationServices, clock: Clock) -> None:
        self._s = services
        self._clock = clock
        self.breakers = Breakers(clock, BreakerPolicy(failures=3))
        """By ``agent:<id>``; three failures in a row leave an agent alone."""
        self._reserved: dict[str, str] = {}
        """Who was chosen for a call that has not been put into a mailbox yet."""

    async def choose(
        self,
        caller: Caller,
        call: str,
        needs: tuple[str, ...],
        match: Match,
    ) -> Ranking:
        """The ranking for ``needs``, recorded under ``call``; a call that is made again gets the
        recorded one. Until ``placed`` the first of it counts as given this work, so that callers of
        one instant spread.

        Raises ``NotFound`` where nobody is in question, with each one's reason.
        """

        def write(tx: Tx) -> Ranking:
            known = tx.scalar(_RECORDED, (caller.message.message_id, call))
            if known is not None:
                return _ranking(known)
            ranking = rank(needs, self._candidates(tx, caller), match)
            if ranking.ranked:
                self._reserved[call] = ranking.ranked[0].agent_id
            self._record_tx(tx, caller, call, needs, match, ranking)
            return ranking

        ranking = await self._s.database.write(write, name="route.choose")
        if not ranking.ranked:
            why = "; ".join(f"{place.name} {place.reason}" for place in ranking.out)
            raise NotFound(
                f"no agent can be given work that needs {', '.join(needs) or 'nothing special'}: "
                f"{why or 'there are no others'}",
                needs=list(needs),
            )
        return ranking

    def placed(self, call: str) -> None:
        """The work of ``call`` is in a mailbox, where it counts by itself, or will not be given."""
        self._reserved.pop(call, None)

    def breaker(self, agent_id: str) -> str:
        """The name of an agent's breaker."""
        return f"agent:{agent_id}"

    # -- inside --------------------------------------------------------------------------------------

    def _candidates(self, reader: Reader, caller: Caller) -> list[Candidate]:
        loads = open_counts(reader)
        reserved = Counter(self._reserved.values())
        rows = reader.all("SELECT agent_id, created_at FROM agents")
        since = {row[0]: row[1] for row in rows}
        found = []
        for name in self._s.directory.names():
            entry = self._s.directory.lookup(name)
            spec = self._s.others.spec(entry.agent_id)
            if spec is None or entry.agent_id == caller.message.agent_id:
                continue
            candidate = Candidate(
                entry.agent_id,
                entry.name,
                spec.capabilities,
                load=loads.get(entry.agent_id, 0) + reserved[entry.agent_id],
                heartbeat_age_s=_HEARD_S.get(entry.status),
                registered_at=since.get(entry.agent_id, 0),
                breaker_wait_s=self.breakers.wait_s(self.breaker(entry.agent_id)),
            )
            found.append(replace(candidate, why_not=self._why_not(caller, entry)))
        return found

    def _why_not(self, caller: Caller, entry: DirectoryEntry) -> str:
        if not entry.is_up:
            return f"is {entry.status}"
        if entry.agent_id in caller.message.path:
            return "waits for this very work"
        forbidden = (permits.why_not_ask(spec, entry.name) for spec in caller.specs)
        return "is not in can_delegate_to" if any(forbidden) else ""

    def _record_tx(
        self,
        tx: Tx,
        caller: Caller,
        call: str,
        needs: tuple[str, ...],
        match: Match,
        ranking: Ranking,
    ) -> None:
        first = ranking.ranked[0] if ranking.ranked else None
        append(
            tx,
            EventType.ROUTE_CHOSEN,
            at=self._clock.now_ms(),
            agent_id=caller.message.agent_id,
            session_id=caller.message.session_id,
            message_id=caller.message.message_id,
            data={
                "deed": "route",
                "call": call,
                "by": caller.owner.name,
                "needs": list(needs),
                "match": match.value,
                "agent": first.name if first else "",
                "reason": first.reason if first else "nobody is in question",
                **ranking.to_json(),
            },
        )


def _ranking(text: str) -> Ranking:
    return Ranking.from_json(json.loads(text))
