"""Values of the daemon as the JSON documents that `shapes` describes."""

from __future__ import annotations

import json
from typing import Any

from agentsup.mailbox import choices
from agentsup.mailbox.bus import AgentDirectory
from agentsup.model.control import AgentView, OverridableField, StopReport
from agentsup.model.event import Event
from agentsup.model.health import AgentState
from agentsup.model.message import TERMINAL, Message, Outcome, State
from agentsup.model.question import Question


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
        "engine_reason": view.engine_reason,
        "model": view.model,
        "model_tier": view.model_tier,
        "fallback_model": view.fallback_model,
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


def overridable(found: OverridableField) -> dict[str, Any]:
    """A field that an operator may set without an edit of a file."""
    return {
        "agent": found.agent,
        "field": found.field,
        "value": found.value,
        "origin": found.origin,
        "takes": found.takes,
        "doc": found.doc,
        "choices": list(found.choices),
    }


def overridden(found: OverridableField) -> dict[str, Any]:
    """The field after it was set or cleared."""
    return {
        "success": True,
        **overridable(found),
        "before": found.before,
        "raises_rights": found.raises_rights,
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
        "schedules": [
            {"task_id": each.task_id, "name": each.name, "next_at": each.next_at}
            for each in report.schedules
        ],
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


def question(value: Question, directory: AgentDirectory, language: str = "") -> dict[str, Any]:
    """A question that waits, or waited, for an answer; with words for a person who reads
    ``language``."""
    return {
        "id": value.question_id,
        "agent": name_of(directory, value.agent_id),
        "agent_id": value.agent_id,
        "session": value.session_id,
        "message_id": value.message_id,
        "kind": value.kind,
        "text": value.text,
        "options": list(value.options),
        "labels": choices.labels(value.kind, value.options, language),
        "state": value.state.value,
        "answer": value.answer,
        "answer_label": choices.answer_label(value, language),
        "asked_at": value.asked_at,
        "deadline_at": value.deadline_at,
        "who": value.who.value,
        "tool": value.tool,
        "call": json.loads(value.call.document) if value.call.document else None,
        "digest": value.call.digest,
        "whole": value.call.whole or value.text,
        "is_cut": bool(value.call.whole),
        "answered_at": value.answered_at,
        "answered_by": value.answered_by,
    }


def waited_for(value: Question | None, language: str = "") -> dict[str, Any] | None:
    """The question to people that a message waits for, as its sender is told of it."""
    if value is None:
        return None
    return {
        "id": value.question_id,
        "kind": value.kind,
        "text": value.text,
        "labels": choices.labels(value.kind, value.options, language),
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
