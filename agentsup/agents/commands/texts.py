"""How states and counts read in a chat. Pure: plain text that fits a phone."""

from __future__ import annotations

from agentsup.model.control import AgentView, StopReport
from agentsup.model.message import Message
from agentsup.model.question import Question

_MARK = {
    "running": "●",
    "degraded": "◐",
    "starting": "○",
    "backoff": "◌",
    "failed": "✗",
    "stopping": "○",
    "stopped": "–",
}


def duration(seconds: float | None) -> str:
    """A length of time in at most two units, such as ``3 h 5 min``."""
    if seconds is None:
        return "–"
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole < 600 else f"{whole // 60} min"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


def count(number: int, noun: str) -> str:
    """``1 agent``, ``2 agents``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def agent(view: AgentView, now_ms: int) -> str:
    """One agent, two to four lines."""
    head = f"{_MARK.get(view.status, '?')} {view.name} - {view.status}"
    if view.desired == "down":
        head += " (stopped by an operator)" if view.status == "stopped" else " (stopping)"
    if view.uptime_s is not None and view.status in ("running", "degraded"):
        head += f", up {duration(view.uptime_s)}"
    engine = view.engine + (f" / {view.model}" if view.model else "")
    lines = [head, f"   {engine}" + (f", role {view.role}" if view.role else "")]
    lines.append(f"   {view.queued} queued, {view.running} running, {view.parked} waiting for you")
    if view.restarts or view.last_reason:
        reason = f": {view.last_reason}" if view.last_reason else ""
        lines.append(f"   {count(view.restarts, 'restart')} lately{reason}")
    if view.next_retry_at is not None:
        lines.append(f"   next try in {duration(max(0, view.next_retry_at - now_ms) / 1000)}")
    if view.status == "failed":
        lines.append(f"   revive it with /agent_start {view.name}")
    if view.pending:
        lines.append(f"   {view.pending}")
    lines.extend(f"   works on: {work}" for work in view.work[:3])
    lines.extend(f"   note: {warning}" for warning in view.warnings[:3])
    return "\n".join(lines)


def agent_label(view: AgentView) -> str:
    """One agent on a button."""
    return f"{_MARK.get(view.status, '?')} {view.name}"


def stop(report: StopReport) -> str:
    """What a stop ended, exactly."""
    total = report.running + report.queued + report.parked
    if total == 0 and report.processes == 0:
        text = "Nothing was running or waiting."
    else:
        text = (
            f"Stopped {count(report.running, 'running turn')}, "
            f"{report.queued} queued and {report.parked} parked, with "
            f"{report.processes} process{'' if report.processes == 1 else 'es'}"
        )
        if report.agents > 1:
            text += f", over {count(report.agents, 'agent')}"
        text += f" ({report.elapsed_ms:.0f} ms)."
    if not report.durable:
        text += (
            " The store could not record it: after a restart of the daemon, stopped work may come "
            "back. Check the disk."
        )
    return text + " The agents stay up."


def dead(message: Message) -> str:
    """One dead letter, for /dead."""
    error = message.error_text or message.error_code
    return f"{message.message_id}\n   “{excerpt(message)}”\n   {error}"


def excerpt(message: Message, limit: int = 80) -> str:
    """The beginning of a message's text on one line."""
    text = " ".join(message.text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def step(message: Message, agent: str, depth: int, *, since_ms: int) -> str:
    """One message of a trace: who, what became of it, when it began and how long it took."""
    state = message.state.value
    if message.outcome is not None:
        state += f" ({message.outcome.value})"
    begun = message.started_at or message.accepted_at
    line = f"{'   ' * depth}{message.message_id} {agent}: {state}, +{_ms(begun - since_ms)}"
    if message.started_at is not None and message.finished_at is not None:
        line += f", took {_ms(message.finished_at - message.started_at)}"
    if message.error_code:
        line += f", {message.error_code}"
    return f"{line}\n{'   ' * depth}   “{excerpt(message, 60)}”"


def _ms(value: int) -> str:
    return f"{value} ms" if value < 1000 else duration(value / 1000)


def question(item: Question) -> str:
    """One open question, for /status."""
    options = f" [{' | '.join(item.options)}]" if item.options else ""
    return f"{item.question_id}: {item.text}{options}"
