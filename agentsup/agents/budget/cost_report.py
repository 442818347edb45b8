"""Usage and remaining budgets as documents, for ``/cost``, HTTP and the command line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agentsup.kit.clock import Clock
from agentsup.mailbox.mail import AgentDirectory
from agentsup.mailbox.usage import reports
from agentsup.mailbox.usage.budget import NANO, TOKENS, USD, Limit, LimitUsage, ledger, level_of
from agentsup.store import Database, Reader


@dataclass(frozen=True, slots=True)
class CostReport:
    """Reads usage and budgets; changes nothing."""

    database: Database
    clock: Clock
    directory: AgentDirectory
    boot_id: str
    limits: Callable[[str, int], list[Limit]]
    """``limits(agent_id, at)`` returns the limits of an agent's day and month, or those of all
    agents for an empty id. Limits without a value are among them, for their periods."""

    async def document(self, name: str | None = None) -> dict[str, Any]:
        """Every agent with the daemon's own budgets, or one agent alone.

        Raises ``NotFound`` or ``Gone`` for a name that is no agent's.
        """
        names = self.directory.names() if name is None else (name,)
        agents = [self.directory.lookup(each) for each in names]
        at = self.clock.now_ms()

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

        return await self.database.read(read, name="cost.document")

    def _of(self, reader: Reader, agent_id: str, at: int) -> dict[str, Any]:
        limits = self.limits(agent_id, at)
        day, month = (limit.scope for limit in limits)
        return {
            "day": _sums(reader, agent_id, day.since, day.until),
            "month": _sums(reader, agent_id, month.since, month.until),
            "total": _sums(reader, agent_id, 0, None),
            "budgets": [
                document
                for one in ledger.usages(reader, None, limits, boot_id=self.boot_id)
                for document in _budgets(one)
            ],
        }


def _sums(reader: Reader, agent_id: str, since: int, until: int | None) -> dict[str, Any]:
    found = reports.total(reader, agent_id=agent_id or None, since=since, until=until)
    return {
        "since": since,
        "until": until,
        "input_tokens": found.input_tokens,
        "output_tokens": found.output_tokens,
        "usd": found.usd,
        "unpriced": found.unpriced,
        "estimated_tokens": found.estimated,
        "cache_read_tokens": found.cache_read,
        "cache_write_tokens": found.cache_write,
    }


def _budgets(one: LimitUsage) -> list[dict[str, Any]]:
    """A document for each unit that has a limit."""
    scope, limit = one.limit.scope, one.limit
    found = []
    for unit, most, used, reserved, by in (
        (USD, limit.nano_usd, one.used.nano_usd, one.reserved.nano_usd, NANO),
        (TOKENS, limit.tokens, one.used.tokens, one.reserved.tokens, 1),
    ):
        if most is None:
            continue
        found.append(
            {
                "scope": scope.kind.value,
                "unit": unit,
                "limit": most / by,
                "used": used / by,
                "held": reserved / by,
                "state": level_of(used, most) or "ok",
                "since": scope.since,
                "free_at": scope.until,
            }
        )
    return found
