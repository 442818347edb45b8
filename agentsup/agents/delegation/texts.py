"""The texts and documents that a model reads about delegated work. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from agentsup.tasks import RunReport

DELEGATE_CHARS, MIXTURE_CHARS, TEAM_CHARS = 20_000, 40_000, 20_000
FAN_OUT_CHARS, RESULT_CHARS, LOG_CHARS = 60_000, 8_000, 4_000
SUMMARY_CHARS = 2_000
ASK_SUMMARY = (
    "\n\nEnd your answer with a section under the heading “## Summary” that holds, in at most 300 "
    "words, all that whoever asked must know. Only that section is passed on."
)
_HEADING = re.compile(r"^#{1,6}[ \t]([^\n]*)$", re.MULTILINE)
"""A heading line. It takes linear time on any text; ``summary_of`` strips blanks and ``#``."""
_STATUS = {"queued": "spawned", "waiting": "running", "done": "completed"}


def cut(text: str, most: int, ref: str = "") -> str:
    """The text, cut to ``most`` characters, with a mark where something is missing.

    With ``ref``, the id of the run whose result the text is, the mark says how to read on.
    """
    if len(text) <= most:
        return text
    mark = f"… [cut: {len(text)} characters in all]"
    if ref:
        mark = (
            f'… [cut: {len(text)} characters in all; read on with result_read(ref="{ref}", '
            f"offset={{shown}})]"
        )
    shown = max(0, most - len(mark))
    return text[:shown] + mark.format(shown=shown)


def summary_of(text: str) -> str:
    """The section under the first heading “Summary”, or the whole text if there is none."""
    headings = list(_HEADING.finditer(text))
    for index, heading in enumerate(headings):
        if heading.group(1).strip().rstrip("#").strip().casefold() == "summary":
            end = headings[index + 1].start() if index + 1 < len(headings) else len(text)
            return cut(text[heading.end() : end].strip(), SUMMARY_CHARS)
    return cut(text.strip(), SUMMARY_CHARS)


def labelled(label: str, text: str) -> str:
    """The text under its label."""
    return f"[{label}]\n\n{text}" if label else text


def running_note(report: RunReport) -> str:
    """The text for a run that has not ended when the wait for it ends."""
    why = f" ({report.condition}: {report.question})" if report.condition else ""
    return (
        f"still {report.status}{why}; it goes on as {report.run.run_id}, and its result will come "
        "as a message"
    )


def failure_of(report: RunReport) -> str:
    """Why a run that has ended has no result."""
    if report.status == "cancelled":
        return "it was stopped"
    return report.run.error_text or report.run.error_code or "it failed, and no reason is recorded"


def status_of(report: RunReport) -> str:
    """The status of a run in the words of the agent_* tools."""
    return _STATUS.get(report.status, report.status)


def record(report: RunReport, most: int, **facts: Any) -> dict[str, Any]:
    """One run of a fan-out as a document. The result is cut to ``most`` characters."""
    run, is_done = report.run, report.status == "done"
    found = {**facts, "run_id": run.run_id, "ok": is_done, "status": report.status}
    if is_done:
        return {**found, "text": cut(run.result, most, run.run_id)}
    return {**found, "error": failure_of(report) if report.is_ended else running_note(report)}


def wait_result(report: RunReport) -> dict[str, Any]:
    """The result of ``agent_wait``.

    An ended run gives its result or error. A run that goes on gives the question that holds it up,
    if there is one.
    """
    found: dict[str, Any] = {"agent_id": report.run.run_id, "status": status_of(report)}
    if report.is_ended:
        is_done = report.status == "done"
        return {
            **found,
            "result": cut(report.run.result, DELEGATE_CHARS, report.run.run_id) if is_done else "",
            "error": "" if is_done else failure_of(report),
        }
    found["timeout"] = True
    if report.condition:
        found |= {"runtime_condition": report.condition, "blocked_reason": report.question}
    if report.question_id:
        found["grant_request_id"] = report.question_id
    return {key: value for key, value in found.items() if value not in ("", None)}


def blocks(parts: Iterable[tuple[str, str, str]], most: int) -> str:
    """Join answers, each under its heading, into one text of at most ``most`` characters.

    ``parts`` are name, text and the id of the run whose result it is (or empty).
    """
    given = list(parts)
    each = max(200, most // max(1, len(given)) - 100)
    shown = (f"## {name}\n\n{cut(text, each, ref)}" for name, text, ref in given)
    return cut("\n\n---\n\n".join(shown), most)


def as_json(document: Any) -> str:
    """A result as models and programs read it."""
    return json.dumps(document, ensure_ascii=False)
