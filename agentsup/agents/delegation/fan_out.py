"""Several at once: each is started, all are waited for together, and one that hangs or is refused
holds up nobody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentsup.agents.delegation import answers
from agentsup.agents.delegation.desk import Caller, DelegationDesk, Wanted
from agentsup.model.errors import Refused
from agentsup.tasks.reports import RunReport


@dataclass(frozen=True, slots=True)
class Found:
    """What came of one: its answer, or why there is none (yet); ``report`` None: it was refused."""

    name: str
    ok: bool
    text: str
    report: RunReport | None = None
    code: str = ""

    @property
    def run_id(self) -> str:
        """The run whose result the text is, or nothing."""
        return self.report.run.run_id if self.ok and self.report is not None else ""


class FanOut:
    """Runs several pieces of work for one call."""

    def __init__(self, desk: DelegationDesk) -> None:
        self._desk = desk

    async def run(
        self,
        caller: Caller,
        wanted: Sequence[Wanted | tuple[str, Refused]],
        timeout_s: float,
    ) -> list[Found]:
        """Start all, wait for all, at most ``timeout_s``; in the order given. What is refused is
        told in its place. Raises ``LeaseLost``."""
        started: dict[int, str] = {}
        found: dict[int, Found] = {}
        for place, each in enumerate(wanted):
            if isinstance(each, tuple):
                found[place] = _refused(*each)
                continue
            try:
                run = await self._desk.start(caller, each.new, is_waited=True, tools=each.tools)
            except Refused as error:
                found[place] = _refused(each.name, error)
            else:
                started[place] = run.run_id
        reports = await self._desk.wait_all(caller, started.values(), timeout_s)
        for place, report in zip(started, reports, strict=True):
            one = wanted[place]
            assert isinstance(one, Wanted), "only those were started"
            found[place] = told(one.name, report)
        return [found[place] for place in range(len(wanted))]


def told(name: str, report: RunReport) -> Found:
    """What came of one run."""
    if not report.is_ended:
        return Found(name, False, answers.still_on(report), report)
    if report.status == "done":
        return Found(name, True, report.run.result, report)
    return Found(name, False, answers.failure_of(report), report, report.run.error_code)


def _refused(name: str, error: Refused) -> Found:
    return Found(name, False, error.message, code=error.code)
