"""Documents the API answers with: their shapes (for OpenAPI) and how values become them.

Times ending in `_at` are wall time in whole milliseconds since 1970-01-01 UTC; `uptime` and
`eta_s` are seconds; `elapsed_ms` is milliseconds.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from agentsup.mailbox.bus import AgentDirectory
from agentsup.model.control import AgentView, StopReport
from agentsup.model.event import Event
from agentsup.model.health import AgentState
from agentsup.model.message import TERMINAL, Message, Outcome, State
from agentsup.model.question import Question, QuestionState


class Document(BaseModel):
    """A JSON object; later versions may add members."""

    model_config = ConfigDict(extra="forbid")


class Problem(BaseModel):
    """RFC 9457. `code` is stable; further members are facts of the error."""

    model_config = ConfigDict(extra="allow")
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
    model: str
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


class MessageShown(MessageDocument):
    position: int | None = Field(description="messages before it; null unless queued")
    eta_s: float | None


class MessageList(Document):
    messages: list[MessageDocument]
    next_cursor: int | None


class DeadList(Document):
    dead: list[MessageDocument]
    next_cursor: int | None


class Thread(Document):
    thread_id: str
    messages: list[MessageDocument]


class Replayed(Document):
    success: Literal[True]
    message_id: str
    replay_of: str


class QuestionDocument(Document):
    id: str
    agent: str
    agent_id: str
    session: str
    message_id: str
    kind: str
    text: str
    options: list[str]
    state: QuestionState
    answer: str
    asked_at: int
    deadline_at: int | None
    answered_at: int | None
    answered_by: str


class QuestionList(Document):
    questions: list[QuestionDocument]
    next_cursor: None


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


def name_of(directory: AgentDirectory, agent_id: str) -> str:
    """The agent's name, or its id where it no longer exists."""
    entry = directory.by_id(agent_id)
    return entry.name if entry else agent_id


def agent(view: AgentView) -> dict[str, Any]:
    """One agent as `/agents` shows it."""
    return {
        "name": view.name,
        "agent_id": view.agent_id,
        "instance_id": view.instance_id,
        "status": view.status,
        "desired": view.desired,
        "crashed": view.status == AgentState.FAILED,
        "role": view.role,
        "engine": view.engine,
        "model": view.model,
        "uptime": view.uptime_s,
        "restarts": view.restarts,
        "last_reason": view.last_reason,
        "last_crash_error": view.last_crash_error,
        "next_retry_at": view.next_retry_at,
        "queued": view.queued,
        "running": view.running,
        "parked": view.parked,
        "is_main": view.is_main,
        "pending": view.pending,
        "warnings": list(view.warnings),
        "work": list(view.work),
    }


def agent_health(view: AgentView) -> dict[str, Any]:
    """One agent as `/interagent/health` shows it."""
    return {
        "status": view.status,
        "uptime": view.uptime_s,
        "restart_count": view.restarts,
        "last_crash_error": view.last_crash_error,
        "last_reason": view.last_reason,
        "next_retry_at": view.next_retry_at,
        "desired": view.desired,
        "crashed": view.status == AgentState.FAILED,
    }


def stopped(report: StopReport) -> dict[str, Any]:
    """What a stop ended, by the state it was in."""
    return {
        "success": True,
        "scope": report.scope,
        "running": report.running,
        "queued": report.queued,
        "parked": report.parked,
        "processes": report.processes,
        "agents": report.agents,
        "elapsed_ms": report.elapsed_ms,
        "durable": report.durable,
        "names": list(report.names),
    }


def result(message: Message, agent_name: str) -> dict[str, Any]:
    """What a caller gets when it asks what became of its message."""
    ended = message.state in TERMINAL
    ok = message.state is State.DONE and message.outcome is Outcome.OK
    return {
        "id": message.message_id,
        "state": message.state.value,
        "success": ok if ended else None,
        "outcome": message.outcome.value if message.outcome else None,
        "text": message.result_text,
        "error": "" if ok or not ended else _why(message),
        "error_code": message.error_code,
        "agent": agent_name,
        "session": message.session_id,
        "accepted_at": message.accepted_at,
        "started_at": message.started_at,
        "finished_at": message.finished_at,
    }


def _why(message: Message) -> str:
    if message.error_text:
        return message.error_text
    if message.state is State.CANCELLED:
        return "the message was stopped before it was answered"
    return "the message failed; no reason was recorded"


def message(value: Message, directory: AgentDirectory) -> dict[str, Any]:
    """A stored message, whole."""
    return {
        "id": value.message_id,
        "seq": value.seq,
        "agent": name_of(directory, value.agent_id),
        "agent_id": value.agent_id,
        "session": value.session_id,
        "thread_id": value.thread_id,
        "kind": value.kind.value,
        "lane": value.lane.value,
        "priority": value.priority.name.lower(),
        "state": value.state.value,
        "outcome": value.outcome.value if value.outcome else None,
        "text": value.text,
        "parts": [part.to_json() for part in value.parts],
        "result_text": value.result_text,
        "error": value.error_text,
        "error_code": value.error_code,
        "sender": value.principal.label,
        "sender_agent_id": value.sender_agent_id,
        "principal": value.principal.to_json(),
        "deliver_to": value.deliver_to.to_json(),
        "in_reply_to": value.in_reply_to,
        "root_id": value.root_id,
        "path": list(value.path),
        "replay_of": value.replay_of,
        "traceparent": value.traceparent,
        "summary": value.summary,
        "silent": value.silent,
        "attempts": value.attempts,
        "crashes": value.crashes,
        "accepted_at": value.accepted_at,
        "started_at": value.started_at,
        "finished_at": value.finished_at,
        "expires_at": value.expires_at,
        "not_before": value.not_before,
    }


def question(value: Question, directory: AgentDirectory) -> dict[str, Any]:
    """A question that waits, or waited, for an answer."""
    return {
        "id": value.question_id,
        "agent": name_of(directory, value.agent_id),
        "agent_id": value.agent_id,
        "session": value.session_id,
        "message_id": value.message_id,
        "kind": value.kind,
        "text": value.text,
        "options": list(value.options),
        "state": value.state.value,
        "answer": value.answer,
        "asked_at": value.asked_at,
        "deadline_at": value.deadline_at,
        "answered_at": value.answered_at,
        "answered_by": value.answered_by,
    }


def event(value: Event) -> dict[str, Any]:
    """A durable event."""
    return {
        "seq": value.seq,
        "at": value.at,
        "type": value.type,
        "agent_id": value.agent_id,
        "session_id": value.session_id,
        "message_id": value.message_id,
        "conversation": value.conversation,
        "data": value.data,
    }
