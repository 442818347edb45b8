"""What a turn needs of its agent and of the daemon, as ports."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from agentsup.agents.recovery.tiers import Tier
from agentsup.model.agent import AgentSpec
from agentsup.model.engine import Engine, EngineSpec
from agentsup.model.ids import AgentId
from agentsup.model.tool import ToolRegistry


class RunTokens(Protocol):
    """Tokens that live as long as a turn."""

    def issue_run(self, agent_id: str, agent_name: str, message_id: str) -> str: ...

    def revoke(self, token: str) -> None: ...


class Surroundings(Protocol):
    """What a turn reads of its agent at its start; live edits are seen by the next turn."""

    @property
    def agent_id(self) -> AgentId:
        """Who works, with whose memory."""

    @property
    def spec(self) -> AgentSpec: ...

    @property
    def payer(self) -> AgentSpec:
        """Whose budget it is: the agent whose message it is."""

    @property
    def engine(self) -> Engine: ...

    def engine_spec(self, token: str, person: str) -> EngineSpec: ...

    def tier(self, name: str) -> Tier:
        """One of the agent's models. Raises ``EngineFailed`` for a fallback that can't be made."""

    def system_prompt(self) -> str: ...

    async def own_tools(self, *, is_patient: bool) -> ToolRegistry | None: ...

    @property
    def workspace(self) -> Path: ...
