"""Additions to a turn on a run, besides the run's text and its agent's workspace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from agentsup.mailbox.questions import questions_outside_turn
from agentsup.model.message import Message, MessageKind
from agentsup.model.question import Question, QuestionState
from agentsup.model.task import Task
from agentsup.store import Database, Reader
from agentsup.tasks import rows
from agentsup.tasks.folders import NOTES, Folders

NOTES_CHARS = 4_000


@dataclass(frozen=True, slots=True)
class Brief:
    """The addition for one turn.

    ``text`` is for the model, ``env`` and ``folders`` are for programs that it runs. ``hard_s`` is
    how long the turn may take (s; None: as long as any turn of its agent). ``reported`` are the ids of
    closed questions, asked in the run's name, whose end is in ``text``.
    """

    text: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    folders: tuple[str, ...] = ()
    hard_s: float | None = None
    reported: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class StoredRun:
    """The stored facts for the brief of a turn: the task of its run, if any, and the questions that
    were asked in the run's name."""

    task: Task | None = None
    asked: Sequence[Question] = ()


class Briefing:
    """Makes the briefs for turns of this node's runs."""

    def __init__(
        self, database: Database, folders: Folders, *, timeout_s: Callable[[], float]
    ) -> None:
        self._database = database
        self._folders = folders
        self._timeout_s = timeout_s

    @staticmethod
    def read_stored(reader: Reader, message: Message) -> StoredRun:
        """Read the stored facts for the brief of a turn on ``message``."""
        if message.kind is not MessageKind.TASK:
            return StoredRun()
        asked = questions_outside_turn(reader, message.message_id)
        return StoredRun(rows.task_of_run(reader, message.message_id), asked)

    async def of(self, message: Message, stored: StoredRun | None = None) -> Brief:
        """The brief of a turn; an empty one if the message is no run.

        ``stored`` is what ``read_stored`` has read.
        """
        if message.kind is not MessageKind.TASK:
            return Brief()
        if stored is None:
            stored = await self._database.read(self.read_stored, message, name="tasks.brief")
        task = stored.task
        closed = [each for each in stored.asked if each.state is not QuestionState.OPEN]
        ids = frozenset(each.question_id for each in closed)
        reports = [_reported(each) for each in closed]
        brief = Brief(hard_s=self._timeout_s(), reported=ids)
        if task is None:
            return replace(brief, text="\n".join(reports))
        text, env = (
            f"You work on task {task.task_id}, “{task.name}”.",
            {"AGENTSUP_TASK": task.task_id},
        )
        try:
            folder, notes = await self._folders.run(partial(self._read, task), key=task.task_id)
        except OSError as error:
            text += f" It has no folder now: {error}."
        else:
            text += f" Its folder is {folder}; what its later runs should know belongs into {NOTES} there."
            if notes:
                text += f"\n{NOTES} says:\n{notes}"
            env["AGENTSUP_TASK_FOLDER"] = str(folder)
            brief = replace(brief, folders=(str(folder),))
        return replace(brief, text="\n".join([text, *reports]), env=env)

    def _read(self, task: Task) -> tuple[Path, str]:
        folder = self._folders.make(task.task_id, task.name)
        return folder, self._folders.read(task.task_id, NOTES_CHARS).strip()


def has_news(reader: Reader, message_id: str, reported: frozenset[str]) -> bool:
    """Whether a question asked in a run's name is open, or has ended and is not in ``reported``."""
    asked = questions_outside_turn(reader, message_id)
    return any(q.state is QuestionState.OPEN or q.question_id not in reported for q in asked)


def _reported(asked: Question) -> str:
    if asked.state is QuestionState.ANSWERED:
        return f"You have asked: {asked.text}\n{asked.answered_by} has answered: {asked.answer}"
    return f"You have asked: {asked.text}\nNobody has answered; decide by yourself, or say so."
