"""Shapes of the documents the API answers with; OpenAPI shows them and tests hold answers to them.

Times ending in `_at` are wall time in whole milliseconds since 1970-01-01 UTC; `uptime` and
`eta_s` are seconds; `elapsed_ms` is milliseconds.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from agentsup.model.health import AgentState
from agentsup.model.message import Outcome, State


class Document(BaseModel):
    """A JSON object; later versions may add members."""

    model_config = ConfigDict(extra="forbid", defer_build=True)


class Problem(BaseModel):
    """RFC 9457. `code` is stable; further members are facts of the error."""

    model_config = ConfigDict(extra="allow", defer_build=True)
    type: str
    title: str
    status: int
    detail: str
    code: str
    request_id: str
    field: str | None = Field(None, description="the wrong field, on 400")


class LegacyProblem(Problem):
    """A problem that also carries the members older clients read."""

    success: Literal[False]
    error: str
    text: str | None = Field(None, description="what is known of a failed answer")


class Done(Document):
    success: Literal[True]


class SendReply(Document):
    sender: str = Field(description="the agent that answered")
    text: str
    success: Literal[True]
    error: Literal[""]
    message_id: str
    session: str


class SendAccepted(Document):
    success: Literal[True]
    task_id: str = Field(description="the message id; fetch /interagent/results/{id}")
    message_id: str
    session: str
    agent_state: AgentState
    duplicate: bool = Field(description="the idempotency key was known; nothing new was stored")


class Result(Document):
    id: str
    state: State
    success: bool | None = Field(description="null until the message has ended")
    outcome: Outcome | None
    text: str
    error: str
    error_code: str
    agent: str
    session: str
    accepted_at: int
    started_at: int | None
    finished_at: int | None


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


class AgentList(Document):
    agents: list[Agent]


class AgentChanged(Agent):
    success: Literal[True]


class Explained(Document):
    agent: str
    values: list[dict[str, Any]]


class Overridable(Document):
    agent: str
    field: str
    value: str | bool | int | float | None
    origin: str = Field(description="`override` where an operator set it, else where it stands")
    takes: str = Field(description="until a change is in effect: live or rebuild")
    doc: str
    choices: list[str] = Field(description="the values there are, where they can be listed")


class OverridableList(Document):
    agent: str
    fields: list[Overridable]


class Overridden(Overridable):
    success: Literal[True]
    before: str | bool | int | float | None
    raises_rights: bool = Field(description="it may now do more without asking than before")


class Standing(Document):
    task_id: str
    name: str
    next_at: int


class Stopped(Document):
    success: Literal[True]
    scope: str
    running: int
    queued: int
    parked: int
    processes: int
    agents: int
    elapsed_ms: float
    durable: bool
    names: list[str]
    schedules: list[Standing] = Field(description="they stay, and run again by themselves")


class MessageDocument(Document):
    id: str
    seq: int
    agent: str
    agent_id: str
    session: str
    thread_id: str
    kind: str
    lane: str
    priority: str
    state: State
    outcome: Outcome | None
    text: str
    parts: list[dict[str, Any]]
    result_text: str
    error: str
    error_code: str
    sender: str = Field(description="who sent it, as people name them")
    sender_agent_id: str
    principal: dict[str, Any]
    deliver_to: dict[str, Any]
    in_reply_to: str
    root_id: str
    path: list[str]
    replay_of: str
    traceparent: str
    summary: str
    silent: bool
    attempts: int
    crashes: int
    accepted_at: int
    started_at: int | None
    finished_at: int | None
    expires_at: int | None
    not_before: int
    private: bool = Field(description="its words are hidden from who asks")


class MessageShown(MessageDocument):
    position: int | None = Field(description="messages before it; null unless queued")
    eta_s: float | None
    waits_for: dict[str, Any] | None = Field(description="the question its session waits for")


class MessageList(Document):
    messages: list[MessageDocument]
    next_cursor: int | None


class DeadList(Document):
    dead: list[MessageDocument]
    next_cursor: int | None


class PoisonDocument(Document):
    id: str
    channel: str
    account: str = Field(description="the bot's id on the platform")
    state: str = Field(description="quarantined; received once it is tried again")
    at: int
    error: str
    raw: dict[str, Any] = Field(description="what the platform gave")


class HookDocument(Document):
    phase: str
    priority: int = Field(description="lower ones run first within a phase")
    name: str
    on: bool
    fixed: bool = Field(description="it has no switch")
    about: str


class HookList(Document):
    hooks: list[HookDocument]


class PoisonList(Document):
    poison: list[PoisonDocument]


class Thread(Document):
    thread_id: str
    messages: list[MessageDocument]


class Replayed(Document):
    success: Literal[True]
    message_id: str
    replay_of: str


class Alive(Document):
    status: Literal["ok"]
    version: str


class Probe(Document):
    name: str
    ok: bool
    detail: str | None = Field(None, description="for the operator's token only")


class Ready(Document):
    ready: bool
    draining: bool
    probes: list[Probe]


class Draining(Document):
    success: Literal[True]
    state: Literal["draining"]


class Restarting(Document):
    success: Literal[True]
    state: Literal["restarting"]


class Status(Document):
    version: str
    boot_id: str
    node_id: str
    pid: int
    home: str
    started_at: int
    uptime_s: float
    state: str
    url: str
    agents_up: int
    agents_total: int
    config_error: str
    warnings: list[str]
    conservation: dict[str, int]


class EventDocument(Document):
    seq: int
    at: int
    type: str
    agent_id: str
    session_id: str
    message_id: str
    conversation: str
    data: dict[str, Any]
    agent: str | None = Field(None, description="name of the agent, in `/events`")


# -- the web page ----------------------------------------------------------------------------------


class SignedIn(Document):
    who: str = Field(description="the person's name, or operator")
    role: str
    language: str = Field(description="what the person reads, or empty: as the browser says")
    is_operator: bool
    may: list[Literal["look", "talk", "steer"]]
    conversation: str = Field(description="this person's own conversation")
    expires_at: int = Field(description="when the session ends unless it is used before")
    version: str
    node_id: str
    agents: list[str]
    max_upload_bytes: int


class PageWords(Document):
    language: str = Field(
        description="the language there are words of, `en` if not of the one asked"
    )
    words: dict[str, str] = Field(description="texts by the English ones; empty for English")


class SignedOut(Document):
    success: Literal[True]
    ended: int = Field(description="sessions that ended")


class Link(Document):
    url: str = Field(description="signs a browser in, once")
    code: str
    expires_at: int
    person: str | None = Field(description="null: the operator")
    role: str


class PersonShown(Document):
    name: str
    role: str


class PeopleList(Document):
    people: list[PersonShown]


class History(Document):
    events: list[EventDocument] = Field(description="oldest first")
    more: bool = Field(description="there are older ones")


class SessionShown(Document):
    id: str
    title: str
    key: str = Field(description="the place where it was begun")
    created_at: int
    updated_at: int
    is_current: bool


class SessionList(Document):
    current: str = Field(description="the session that the conversation is in, or empty")
    sessions: list[SessionShown]


class SessionChanged(Document):
    success: Literal[True]
    session: SessionShown


class Uploaded(Document):
    path: str = Field(description="in the agent's workspace")
    name: str
    size: int


class LogLine(Document):
    at: int
    source: Literal["log", "event"]
    level: str
    text: str
    facts: dict[str, Any]


class Log(Document):
    lines: list[LogLine] = Field(description="oldest first")


class AgentFigures(Document):
    agent: str
    agent_id: str
    turns: int
    failed: int
    cancelled: int
    p50_s: float | None = Field(description="from accepted to finished; null if nothing ended")
    p95_s: float | None
    wait_p50_s: float | None = Field(description="from accepted to started")
    input_tokens: int
    output_tokens: int
    usd: float | None
    unpriced: int = Field(description="reports of usage without a price")
    by_hour: list[int] = Field(description="messages that ended, in equal spans, oldest first")


class Figures(Document):
    since: int
    until: int
    hours: int
    agents: list[AgentFigures]
