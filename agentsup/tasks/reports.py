"""What is known of a run, from its message, its questions and its waits."""

from __future__ import annotations

from dataclasses import dataclass

from agentsup.mailbox.rows import question_of
from agentsup.model.errors import NotFound
from agentsup.model.message import TERMINAL, Outcome, State
from agentsup.model.question import APPROVAL, Question
from agentsup.model.task import Run
from agentsup.store.database import Reader
from agentsup.tasks import rows

__all__ = ["RunReport", "is_ended", "report_of"]

BLOCKED_APPROVAL = "blocked_waiting_approval"
BLOCKED_MESSAGE = "blocked_waiting_message"
WAITING_ON_RUN = "waiting_on_teammate"

_STATUS = {
    State.QUEUED: "queued",
    State.LEASED: "running",
    State.PARKED: "waiting",
    State.DEAD: "failed",
    State.CANCELLED: "cancelled",
}
_ENDED = {"done", "failed", "cancelled"}


@dataclass(frozen=True, slots=True)
class RunReport:
    """What is known of a run now. ``status``: queued | running | waiting | done | failed |
    cancelled; ``condition`` says what one that goes on is held up by, or nothing."""

    run: Run
    status: str
    condition: str = ""
    question_id: str = ""
    question: str = ""

    @property
    def is_ended(self) -> bool:
        """Whether it has its result, or never will."""
        return self.status in _ENDED


def report_of(reader: Reader, run_id: str) -> RunReport:
    """How the run is. Raises ``NotFound``."""
    run = rows.find_run(reader, run_id)
    if run is None:
        raise NotFound(f"run {run_id} not found", run_id=run_id)
    status = _status(run)
    if status in _ENDED:
        return RunReport(run, status)
    asked = _asked(reader, run_id)
    if asked is not None:
        condition = BLOCKED_APPROVAL if asked.kind == APPROVAL else BLOCKED_MESSAGE
        return RunReport(run, "waiting", condition, asked.question_id, asked.text)
    waits_for = reader.scalar("SELECT 1 FROM waits WHERE waiter_id = ? LIMIT 1", (run_id,))
    return RunReport(run, status, WAITING_ON_RUN if waits_for else "")


def is_ended(reader: Reader, run_id: str) -> bool:
    """``report_of`` for whoever waits for the end. Raises ``NotFound``."""
    state = reader.scalar("SELECT state FROM messages WHERE message_id = ?", (run_id,))
    return report_of(reader, run_id).is_ended if state is None else State(state) in TERMINAL


def _status(run: Run) -> str:
    if run.state == "skipped":
        return "cancelled"
    state = State(run.state)
    if state is State.DONE:
        return "failed" if run.outcome == Outcome.FAILED else "done"
    return _STATUS[state]


def _asked(reader: Reader, run_id: str) -> Question | None:
    row = reader.one(
        "SELECT * FROM questions WHERE message_id = ? AND state = 'open'"
        " ORDER BY question_id LIMIT 1",
        (run_id,),
    )
    return None if row is None else question_of(row)  # type: ignore[arg-type]  # as above
