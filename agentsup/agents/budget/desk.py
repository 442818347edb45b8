"""What was used and what is left, as documents: for `/cost`, HTTP and the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentsup.kit.clock import Clock
from agentsup.mailbox import usage
from agentsup.mailbox.budget import ledger
from agentsup.mailbox.budget.decide import TOKENS, USD, WARN_SHARE, Standing
from agentsup.mailbox.budget.scopes import NANO, Limit
from agentsup.mailbox.bus import AgentDirectory
from agentsup.store.database import Database, Reader


class CostDesk:
    """Reads; changes nothing."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        directory: AgentDirectory,
        *,
        boot_id: str,
        limits: Callable[[str, int], list[Limit]],
    ) -> None:
        """``limits(agent_id, at)`` are those of an agent's day and month, or, without an id, of
        all agents; also the ones that bound nothing, for their periods."""
        self._database = database
        self._clock = clock
        self._directory = directory
        self._boot_id = boot_id
        self._limits = limits

    async def document(self, name: str | None = None) -> dict[str, Any]:
        """Every agent with the daemon's own budgets, or one agent alone.

        Raises ``NotFound`` or ``Gone`` for a name that is no agent's.
        """
        names = self._directory.names() if name is None else (name,)
        agents = [self._directory.lookup(each) for each in names]
        at = self._clock.now_ms()

        def read(reader: Reader) -> dict[str, Any]:
            found: dict[str, Any] = {
                "at": at,
                "agents": [
                    {
                        "agent": agent.name,
                        "agent_id": agent.agent_id,
                        **self._of(reader, agent.agent_id, at),
                    }
                    for agent in agents
                ],
            }
            if name is None:
                found["all"] = self._of(reader, "", at)
            return found

        return await self._database.read(read, name="cost.document")

    def _of(self, reader: Reader, agent_id: str, at: int) -> dict[str, Any]:
        limits = self._limits(agent_id, at)
        day, month = (limit.scope for limit in limits)
        return {
            "day": _sums(reader, agent_id, day.since, day.until),
            "month": _sums(reader, agent_id, month.since, month.until),
            "total": _sums(reader, agent_id, 0, None),
            "budgets": [
                document
                for one in ledger.standings(reader, None, limits, boot_id=self._boot_id)
                for document in _budgets(one)
            ],
        }


def _sums(reader: Reader, agent_id: str, since: int, until: int | None) -> dict[str, Any]:
    found = usage.total(reader, agent_id=agent_id or None, since=since, until=until)
    return {
        "since": since,
        "until": until,
        "input_tokens": found.input_tokens,
        "output_tokens": found.output_tokens,
        "usd": found.usd,
        "unpriced": found.unpriced,
        "estimated_tokens": found.estimated,
    }


def _budgets(one: Standing) -> list[dict[str, Any]]:
    """A document for each unit that is bounded."""
    scope, limit = one.limit.scope, one.limit
    found = []
    for unit, most, used, held, by in (
        (USD, limit.nano_usd, one.used.nano_usd, one.held.nano_usd, NANO),
        (TOKENS, limit.tokens, one.used.tokens, one.held.tokens, 1),
    ):
        if most is None:
            continue
        state = "ok"
        if used >= most:
            state = "exhausted"
        elif used >= WARN_SHARE * most:
            state = "warned"
        found.append(
            {
                "scope": scope.kind.value,
                "unit": unit,
                "limit": most / by,
                "used": used / by,
                "held": held / by,
                "state": state,
                "since": scope.since,
                "free_at": scope.until,
            }
        )
    return found
