"""The ends of runs, told to whoever wants to hear of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from agentsup.agents.pipeline.hooks import Hooks
from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox.rows import OPEN_SQL, message_of
from agentsup.model.hook import SubagentFacts, SubagentWatch
from agentsup.store.database import Database, Reader
from agentsup.tasks.runs import Runs

_WATCH_S = 86_400.0
"""A watch that hears nothing so long begins anew."""
_OPEN = (
    "SELECT m.*, r.target AS run_target, r.parent_message_id AS run_parent, t.patterns AS run_tools"  # noqa: S608 - a constant
    " FROM messages m JOIN runs r ON r.run_id = m.message_id"
    f" LEFT JOIN session_tools t ON t.session_id = m.session_id WHERE m.{OPEN_SQL}"
    " AND m.kind = 'task' AND r.parent_message_id <> ''"
)


class RunEnds:
    """Tells stages that watch for it of the end of each run that agents have started, once."""

    def __init__(
        self, database: Database, runs: Runs, hooks: Callable[[], Hooks], tasks: TaskOwner
    ) -> None:
        self._database = database
        self._runs = runs
        self._hooks = hooks
        self._tasks = tasks
        self._attended: set[str] = set()

    def attend(self, facts: SubagentFacts) -> None:
        """Tell those who want to hear of the run's end."""
        if self._hooks().of(SubagentWatch) and facts.run_id not in self._attended:
            self._attended.add(facts.run_id)
            self._tasks.spawn(self._hear_end(facts), name=f"run-end:{facts.run_id}")

    async def _hear_end(self, facts: SubagentFacts) -> None:
        report = await self._runs.wait(facts.run_id, _WATCH_S)
        while not report.is_ended:
            report = await self._runs.wait(facts.run_id, _WATCH_S)
        self._tell(facts, report.status)

    async def attend_earlier(self) -> None:
        """Tell of the ends of runs that an earlier life of the daemon has begun, until there are no
        more of them. It holds whenever whoever wants to hear of them comes."""
        found = await self._database.read(_open_runs, name="run_ends.earlier")
        earlier = {each: found[each] for each in found.keys() - self._attended}
        self._attended |= earlier.keys()
        touched: set[str] = set()
        changed = asyncio.Event()

        def touch(run_id: str) -> None:
            touched.add(run_id)
            changed.set()

        unlisten = [
            self._database.listen(f"done:{run_id}", partial(touch, run_id)) for run_id in earlier
        ]
        try:
            for run_id in earlier.keys() - (
                await self._database.read(_open_runs, name="run_ends.earlier")
            ):
                touch(run_id)
            while earlier:
                await changed.wait()
                changed.clear()
                while touched:
                    run_id = touched.pop()
                    report = await self._runs.report(run_id)
                    if report.is_ended and run_id in earlier:
                        self._tell(earlier.pop(run_id), report.status)
        finally:
            for each in unlisten:
                each()

    def _tell(self, facts: SubagentFacts, outcome: str) -> None:
        self._attended.discard(facts.run_id)
        self._hooks().subagent_ended(replace(facts, outcome=outcome))


def _open_runs(reader: Reader) -> dict[str, SubagentFacts]:
    found = {}
    for row in reader.all(_OPEN):
        message, tools = message_of(row), row["run_tools"]  # type: ignore[arg-type]  # Row is a mapping in all but name
        found[str(message.message_id)] = SubagentFacts(
            run_id=message.message_id,
            parent=row["run_parent"],
            role=row["run_target"],
            instruction=message.text,
            tools=None if tools is None else tuple(json.loads(tools)),
        )
    return found
