"""Notifies the hooks that watch for the ends of runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from agentsup.agents.pipeline.pipeline import Hooks
from agentsup.agents.sessions.handler import identity_of
from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox.messages import need_message
from agentsup.model.hook import SubagentFacts, SubagentWatch
from agentsup.store import Database, Reader
from agentsup.tasks import Runs, rows

_WATCH_S = 86_400.0
"""Seconds after which an unfinished wait for a run's end is started again."""


class RunEnds:
    """Notifies the ``SubagentWatch`` hooks of the end of each run of an agent, once."""

    def __init__(
        self, database: Database, runs: Runs, hooks: Callable[[], Hooks], tasks: TaskOwner
    ) -> None:
        self._database = database
        self._runs = runs
        self._hooks = hooks
        self._tasks = tasks
        self._attended: set[str] = set()

    def attend(self, facts: SubagentFacts) -> None:
        """Notify the hooks when the run ends, if any hook watches for this."""
        if self._hooks().of(SubagentWatch) and facts.run_id not in self._attended:
            self._attended.add(facts.run_id)
            self._tasks.spawn(self._on_run_end(facts), name=f"run-end:{facts.run_id}")

    async def _on_run_end(self, facts: SubagentFacts) -> None:
        report = await self._runs.wait(facts.run_id, _WATCH_S)
        while not report.is_ended:
            report = await self._runs.wait(facts.run_id, _WATCH_S)
        self._notify(facts, report.status)

    async def watch_earlier(self) -> None:
        """Notify the hooks of the ends of runs that an earlier life of the daemon has started.

        It returns when all of these have ended. Hooks that are registered meanwhile are notified as
        well.
        """
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
                        self._notify(earlier.pop(run_id), report.status)
        finally:
            for each in unlisten:
                each()

    def _notify(self, facts: SubagentFacts, outcome: str) -> None:
        self._attended.discard(facts.run_id)
        self._hooks().subagent_ended(replace(facts, outcome=outcome))


def _open_runs(reader: Reader) -> dict[str, SubagentFacts]:
    found = {}
    for run in rows.open_delegated_runs(reader):
        message = need_message(reader, run.run_id)
        found[run.run_id] = SubagentFacts(
            run_id=message.message_id,
            parent=run.parent_message_id,
            role=run.target,
            instruction=message.text,
            tools=identity_of(reader, message.session_id).tools,
        )
    return found
