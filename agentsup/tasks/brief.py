"""What a turn on a run is told beside the run's own text, and lent beside its agent's workspace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from agentsup.mailbox.questions import aside
from agentsup.model.message import Kind, Message
from agentsup.model.question import Question, QuestionState
from agentsup.model.task import Task
from agentsup.store.database import Database, Reader
from agentsup.tasks import rows
from agentsup.tasks.folders import NOTES, Folders

__all__ = ["Brief", "Briefing", "is_untold"]

NOTES_CHARS = 4_000


@dataclass(frozen=True, slots=True)
class Brief:
    """``text`` is for the model, ``env`` and ``folders`` for programs that it runs; ``hard_s`` is
    how long the turn may take (None: as long as any of its agent). ``told`` are the questions put
    in the run's name whose end it tells."""

    text: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    folders: tuple[str, ...] = ()
    hard_s: float | None = None
    told: frozenset[str] = frozenset()


class Briefing:
    """Briefs the turns of this node's runs."""

    def __init__(
        self, database: Database, folders: Folders, *, timeout_s: Callable[[], float]
    ) -> None:
        self._database = database
        self._folders = folders
        self._timeout_s = timeout_s

    async def of(self, message: Message) -> Brief:
        """The brief of a turn; an empty one for what is no run."""
        if message.kind is not Kind.TASK:
            return Brief()

        def look(reader: Reader) -> tuple[Task | None, list[Question]]:
            run = rows.find_run(reader, message.message_id)
            task = rows.find_task(reader, run.task_id) if run is not None else None
            return task, aside(reader, message.message_id)

        task, asked = await self._database.read(look, name="tasks.brief")
        closed = [each for each in asked if each.state is not QuestionState.OPEN]
        ids = frozenset(each.question_id for each in closed)
        told = [_told(each) for each in closed]
        if task is None:
            return Brief("\n".join(told), hard_s=self._timeout_s(), told=ids)
        try:
            folder, notes = await self._folders.run(partial(self._read, task), key=task.task_id)
        except OSError as error:
            lines = [
                f"You work on task {task.task_id}, “{task.name}”. It has no folder now: {error}."
            ]
            env = {"AGENTSUP_TASK": task.task_id}
            return Brief("\n".join([*lines, *told]), env=env, hard_s=self._timeout_s(), told=ids)
        lines = [
            (
                f"You work on task {task.task_id}, “{task.name}”. Its folder is {folder}; what its later "
                f"runs should know belongs into {NOTES} there."
            ),
        ]
        if notes:
            lines.append(f"{NOTES} says:\n{notes}")
        return Brief(
            "\n".join([*lines, *told]),
            env={"AGENTSUP_TASK": task.task_id, "AGENTSUP_TASK_FOLDER": str(folder)},
            folders=(str(folder),),
            hard_s=self._timeout_s(),
            told=ids,
        )

    def _read(self, task: Task) -> tuple[Path, str]:
        folder = self._folders.make(task.task_id, task.name)
        return folder, self._folders.read(task.task_id, NOTES_CHARS).strip()


def is_untold(reader: Reader, message_id: str, told: frozenset[str]) -> bool:
    """Whether a question put in a run's name is open, or its turn was not told how it ended."""
    asked = aside(reader, message_id)
    return any(q.state is QuestionState.OPEN or q.question_id not in told for q in asked)


def _told(asked: Question) -> str:
    if asked.state is QuestionState.ANSWERED:
        return f"You have asked: {asked.text}\n{asked.answered_by} has answered: {asked.answer}"
    return f"You have asked: {asked.text}\nNobody has answered; decide by yourself, or say so."
