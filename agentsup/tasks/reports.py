"""The report on a run, from its message, its questions and its waits."""

from __future__ import annotations

from dataclasses import dataclass, replace

from agentsup.mailbox.questions import asking
from agentsup.mailbox.queue import waits
from agentsup.model.errors import NotFound
from agentsup.model.message import Message, MessageOutcome, MessageState
from agentsup.model.question import APPROVAL
from agentsup.model.task import Run
from agentsup.store import Reader
from agentsup.tasks import rows

BLOCKED_APPROVAL = "blocked_waiting_approval"
BLOCKED_MESSAGE = "blocked_waiting_message"
WAITING_ON_RUN = "waiting_on_teammate"

_STATUS = {
    MessageState.QUEUED: "queued",
    MessageState.LEASED: "running",
    MessageState.PARKED: "waiting",
    MessageState.DEAD: "failed",
    MessageState.CANCELLED: "cancelled",
}
_ENDED = {"done", "failed", "cancelled"}


@dataclass(frozen=True, slots=True)
class RunReport:
    """The state of a run now. ``status``: queued | running | waiting | done | failed | cancelled.

    ``condition`` says what an open run waits for (one of the constants above), or is empty.
    """

    run: Run
    status: str
    condition: str = ""
    question_id: str = ""
    question: str = ""

    @property
    def is_ended(self) -> bool:
        """Whether it has its result, or will never have one."""
        return self.status in _ENDED


def report_of(reader: Reader, run_id: str) -> RunReport:
    """The report on a run. Raises ``NotFound``."""
    run = rows.find_run(reader, run_id)
    if run is None:
        raise NotFound(f"run {run_id} not found", run_id=run_id)
    status = _status(run)
    if status in _ENDED:
        return RunReport(run, status)
    asked = next(iter(asking.open_of(reader, run_id)), None)
    if asked is not None:
        condition = BLOCKED_APPROVAL if asked.kind == APPROVAL else BLOCKED_MESSAGE
        return RunReport(run, "waiting", condition, asked.question_id, asked.text)
    return RunReport(run, status, WAITING_ON_RUN if waits.is_waiting(reader, run_id) else "")


def report_of_end(run: Run, ended: Message) -> RunReport:
    """The report on a run that was open, from its message as the commit of its end has it."""
    run = replace(
        run,
        state=ended.state.value,
        outcome=ended.outcome or "",
        result=ended.result_text,
        error_code=ended.error_code,
        error_text=ended.error_text,
        started_at=ended.started_at,
        finished_at=ended.finished_at,
    )
    return RunReport(run, _status(run))


def _status(run: Run) -> str:
    if run.state == "skipped":
        return "cancelled"
    state = MessageState(run.state)
    if state is MessageState.DONE:
        return "failed" if run.outcome == MessageOutcome.FAILED else "done"
    return _STATUS[state]
