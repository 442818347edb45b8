"""Ports for what a turn needs of its agent and of the daemon."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from agentsup.agents.recovery.tiers import ModelTier
from agentsup.model.agent import AgentSpec
from agentsup.model.engine import Engine, EngineSpec
from agentsup.model.ids import AgentId
from agentsup.model.tool import ToolRegistry


class RunTokens(Protocol):
    """Issues tokens that are valid during a turn."""

    def issue_run(self, agent_id: str, agent_name: str, message_id: str) -> str: ...

    def revoke(self, token: str) -> None: ...


class AgentContext(Protocol):
    """The agent's state that a turn reads at its start; live edits are seen by the next turn."""

    @property
    def agent_id(self) -> AgentId:
        """The agent that does the turn, with its own memory."""

    @property
    def spec(self) -> AgentSpec: ...

    @property
    def payer(self) -> AgentSpec:
        """The agent that owns the message and whose budget pays."""

    @property
    def engine(self) -> Engine: ...

    def engine_spec(self, token: str, person: str) -> EngineSpec: ...

    def tier(self, name: str) -> ModelTier:
        """One of the agent's models. Raises ``EngineFailed`` for a fallback that can't be made."""

    @property
    def chat_model(self) -> str:
        """The model that was chosen for the chat of the turn; empty if it is the agent's own."""

    def system_prompt(self) -> str: ...

    async def own_tools(self, *, is_patient: bool) -> ToolRegistry | None: ...

    @property
    def workspace(self) -> Path: ...
