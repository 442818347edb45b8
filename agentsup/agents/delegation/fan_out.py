"""Fan-out: one call starts several runs and waits for all of them at once.

A run that hangs or is refused does not hold up the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from agentsup.agents.delegation import texts
from agentsup.agents.delegation.service import DelegatingTurn, DelegationService, RequestedRun
from agentsup.model.errors import Refused
from agentsup.tasks import RunReport

T = TypeVar("T")
_WHY_CHARS = 1_000


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The outcome of one run: its answer, or why there is none (yet).

    ``report`` is None if the run was refused.
    """

    name: str
    ok: bool
    text: str
    report: RunReport | None = None
    code: str = ""

    @property
    def run_id(self) -> str:
        """The id of the run whose result the text is, or empty."""
        return self.report.run.run_id if self.ok and self.report is not None else ""

    @property
    def why(self) -> str:
        """Who has not answered, and why."""
        return f"{self.name}: {texts.cut(self.text, _WHY_CHARS)}"

    def record(self, most: int) -> dict[str, Any]:
        """The outcome as a document. The result is cut to ``most`` characters."""
        if self.report is None:
            return {"ok": False, "error": self.text, "code": self.code}
        return texts.record(self.report, most)


async def run_all(
    service: DelegationService,
    caller: DelegatingTurn,
    wanted: Sequence[RequestedRun],
    timeout_s: float,
) -> list[RunOutcome]:
    """Start all runs and wait for all, at most ``timeout_s``.

    The outcomes have the order of ``wanted``; a refused entry has its refusal as outcome.
    Raises ``LeaseLost``.
    """
    started: dict[int, str] = {}
    found: dict[int, RunOutcome] = {}
    for index, each in enumerate(wanted):
        if isinstance(each.new, Refused):
            found[index] = refusal(each.name, each.new)
            continue
        try:
            run = await service.start(caller, each.new, is_waited=True)
            started[index] = run.run_id
        except Refused as error:
            found[index] = refusal(each.name, error)
    reports = await wait_all(
        (f"wait:{run_id}", service.wait(caller, run_id, timeout_s)) for run_id in started.values()
    )
    for index, report in zip(started, reports, strict=True):
        found[index] = outcome_text(wanted[index].name, report)
    return [found[index] for index in range(len(wanted))]


async def wait_all(work: Iterable[tuple[str, Coroutine[Any, Any, T]]]) -> list[T]:
    """Run the coroutines at once, as tasks of these names; the results have the order given.

    The first failure cancels the others. Its error is raised itself, not as a group, since callers
    decide by its type.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each, name=name) for name, each in work]
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


def outcome_text(name: str, report: RunReport) -> RunOutcome:
    """The outcome of one run that was started."""
    if not report.is_ended:
        return RunOutcome(name, False, texts.running_note(report), report)
    if report.status == "done":
        return RunOutcome(name, True, report.run.result, report)
    return RunOutcome(name, False, texts.failure_of(report), report, report.run.error_code)


def refusal(name: str, error: Refused) -> RunOutcome:
    """The outcome of a run that could not be started."""
    return RunOutcome(name, False, error.message, code=error.code)
