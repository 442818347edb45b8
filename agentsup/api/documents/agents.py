"""Agents, their health, their fields and what a stop ended, as documents."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field

from agentsup.api.documents.document import Document, DoneDocument
from agentsup.model.control import AgentView, StopReport
from agentsup.model.health import AgentState


class AgentNames(Document):
    agents: list[str]


class AgentHealth(Document):
    status: AgentState
    uptime: float | None = Field(description="seconds of this life; null while not running")
    restart_count: int
    last_crash_error: str
    last_reason: str
    next_retry_at: int | None
    desired: str
    crashed: bool = Field(description="the agent was given up after repeated failures")

    @classmethod
    def of(cls, view: AgentView) -> Self:
        """One agent as ``/interagent/health`` shows it."""
        return cls.from_value(
            view,
            uptime=view.uptime_s,
            restart_count=view.restarts,
            crashed=view.status == AgentState.FAILED,
        )


class HealthByName(Document):
    agents: dict[str, AgentHealth]


class Agent(Document):
    name: str
    agent_id: str
    instance_id: str
    status: AgentState
    desired: str
    crashed: bool
    role: str
    engine: str
    engine_reason: str = Field(description="why `auto` came to it")
    engine_problem: str = Field(
        description="why the engine is worse than what the files name, with the cure"
    )
    model: str
    model_tier: str = Field(description="which of its models is wanted: primary or fallback")
    fallback_model: str = Field(description="empty where there is none")
    uptime: float | None
    restarts: int
    last_reason: str
    last_crash_error: str
    next_retry_at: int | None
    queued: int
    running: int
    parked: int
    is_main: bool
    pending: str
    warnings: list[str]
    work: list[str]

    @classmethod
    def of(cls, view: AgentView, **members: Any) -> Self:
        """One agent as ``/agents`` shows it."""
        crashed = view.status == AgentState.FAILED
        return cls.from_value(view, crashed=crashed, uptime=view.uptime_s, **members)


class AgentList(Document):
    agents: list[Agent]


class AgentChanged(Agent, DoneDocument):
    pass


class BotOfferDocument(DoneDocument):
    agent: str
    username: str = Field(description="what Telegram suggests; the person may change it")
    link: str
    qr: str = Field(description="the link as a QR code (SVG)")
    expires_at: int


class ExplainedDocument(Document):
    agent: str
    values: list[dict[str, Any]]


class Overridable(Document):
    agent: str
    field: str
    value: str | bool | int | float | None
    origin: str = Field(description="`override` if an operator set it, else the file that has it")
    takes: str = Field(description="until a change is in effect: live or rebuild")
    doc: str
    choices: list[str] = Field(description="the values there are, where they can be listed")


class OverridableList(Document):
    agent: str
    fields: list[Overridable]


class Overridden(Overridable, DoneDocument):
    before: str | bool | int | float | None
    raises_rights: bool = Field(description="it may now do more without asking than before")


class ChatModelDocument(Document):
    chat: str
    model: str
    chosen_by: str
    chosen_at: int
    not_used: str = Field(
        description="the service for which it was chosen, if another one answers now, so that the"
        " agent's own model does; else empty"
    )
    unchecked: str = Field(description="why the provider could not be asked for it, or empty")


class ChatModelList(Document):
    chats: list[ChatModelDocument]


class ChatModelChosen(DoneDocument):
    holds: ChatModelDocument | None = Field(description="null: the agent's own model")


class RemainingScheduleDocument(Document):
    task_id: str
    name: str
    next_at: int


class StopReportDocument(DoneDocument):
    scope: str
    running: int
    queued: int
    parked: int
    processes: int
    agents: int
    elapsed_ms: float
    durable: bool
    names: list[str]
    schedules: list[RemainingScheduleDocument] = Field(
        description="they stay, and run again by themselves"
    )

    @classmethod
    def of(cls, report: StopReport) -> Self:
        """The counts of what a stop ended, by the former state."""
        schedules = [RemainingScheduleDocument.from_value(each) for each in report.schedules]
        return cls.from_value(report, success=True, schedules=schedules)
