"""The services of turns for tests that judge something else: no budget, no memory, no roles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, cast

from agentsup.agents.budget.spending import BudgetReservations, StoredBudget
from agentsup.agents.memory import transcript
from agentsup.agents.memory.preparation import (
    PreparedTurn,
    TurnPreparation,
    TurnPreparer,
    TurnStart,
)
from agentsup.agents.persona.context import AgentContext
from agentsup.agents.roles.limits import RoleLimits, Roles
from agentsup.agents.turn import TurnServices
from agentsup.mailbox.work import Work
from agentsup.model.agent import AgentSpec
from agentsup.model.engine import Usage
from agentsup.model.ids import InstanceId
from agentsup.model.message import Lease, Message
from agentsup.store import Reader, Tx
from agentsup.tasks import Brief, Briefing, StoredRun


class NullBudget:
    """Reserves nothing and ends no turn."""

    def look(self, reader: Reader, message: Message) -> StoredBudget:
        return StoredBudget(message.agent_id, has_limits=False)

    async def reserve(
        self,
        work: Work,
        around: AgentContext,
        model: str = "",
        stored: StoredBudget | None = None,
    ) -> float | None:
        return around.payer.budget.per_turn_usd

    async def priced(self, usage: Usage, *args: object, **more: object) -> Usage:
        return usage

    def charge_tx(self, tx: Tx, message: Message, fresh: Sequence[Usage]) -> None:
        return None

    def end_tx(self, tx: Tx, message: Message) -> None:
        return None

    def forget(self, message: Message) -> None:
        return None


_EMPTY = transcript.StoredSession((), transcript.SessionSize(0, 0, 0, 0), "", None)


class NullPreparer:
    """Recalls nothing and shortens nothing."""

    def look(self, reader: Reader, agent_id: str, spec: AgentSpec, message: Message) -> TurnStart:
        return TurnStart((), transcript.read_session(reader, message.session_id))

    async def prepare(self, turn: TurnPreparation, start: TurnStart | None = None) -> PreparedTurn:
        return PreparedTurn("", "", start.session if start else _EMPTY)

    async def shorten(self, turn: TurnPreparation) -> bool:
        return False


class NullRoles:
    """Knows no role."""

    def for_others(self, bounds: RoleLimits) -> tuple[tuple[str, str], ...]:
        return ()


class NoOthers:
    """An installation of agents that work in nobody else's persona."""

    def spec(self, agent_id: str) -> None:
        return None

    def is_disabled(self, agent_id: str) -> bool:
        return False

    def name_of(self, agent_id: str) -> str:
        return agent_id

    def servers(self, agent_id: str) -> None:
        return None


class NullBriefing:
    """No extra instructions for a run."""

    def look(self, reader: Reader, message: Message) -> StoredRun:
        return StoredRun()

    async def of(self, message: Message, stored: StoredRun | None = None) -> Brief:
        return Brief()


async def own_limits(spec: AgentSpec) -> RoleLimits:
    """The tools of the agent's entry, without a role."""
    return RoleLimits(spec.tools)


def lease_of(agent_id: str, message_id: str, session_id: str) -> Lease:
    """A lease on a message of which nothing else is known."""
    known = {"agent_id": agent_id, "message_id": message_id, "session_id": session_id}
    values: dict[str, Any] = {each.name: known.get(each.name, "") for each in fields(Message)}
    return Lease(Message(**values), fence=1, instance_id=InstanceId("ins_1"))


def turn_services(**changes: Any) -> TurnServices:
    """``TurnServices`` with null objects for what ``changes`` does not name."""
    null: dict[str, Any] = {
        "before_turn": cast(TurnPreparer, NullPreparer()),
        "brief": cast(Briefing, NullBriefing()),
        "roles": cast(Roles, NullRoles()),
        "spending": cast(BudgetReservations, NullBudget()),
    }
    return TurnServices(**{**null, **changes})
