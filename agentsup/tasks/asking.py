"""Questions of a task: asked from outside the turn they belong to, answered, and listed."""

from __future__ import annotations

from collections.abc import Sequence

from agentsup.mailbox import Mailbox
from agentsup.mailbox.lifecycle import answering
from agentsup.mailbox.messages import find_message, question_of
from agentsup.mailbox.questions import OUTSIDE_TURN, asking, rendering
from agentsup.mailbox.queue import check_root
from agentsup.model.engine import Suspended
from agentsup.model.errors import BadRequest, Conflict, NotFound
from agentsup.model.message import MessageState
from agentsup.model.principal import Principal
from agentsup.model.question import ASK_PARENT, NOTHING_SEEN, Question, QuestionState
from agentsup.model.task import Task
from agentsup.store import Reader, Tx
from agentsup.tasks import rows

Conversation = tuple[str, str]
"""Channel and conversation."""
MAX_TEXT_CHARS = 20_000
MAX_OPTIONS, MAX_OPTION_CHARS = 20, 200
PUT = (
    "The question has been put to whoever gave you this work. End your turn now and say how far "
    "you are; the work waits, and goes on here as soon as there is an answer."
)
"""The text for a program or a model that has asked."""


def ask_tx(
    mailbox: Mailbox, tx: Tx, run_id: str, text: str, options: Sequence[str], *, of: str
) -> Question:
    """Ask those who delegated the run a question, in the name of its running turn.

    The same text is asked once: asked again, the earlier question is returned, open or closed.
    ``of`` names the run or task in errors. Raises ``BadRequest``, ``Conflict`` (no turn of it runs,
    or it waits for another answer) and ``DepthExceeded`` (an agent was to be asked, and the work
    has used its messages).
    """
    _check(text, options)
    message = find_message(tx, run_id)
    if message is None or message.state not in (MessageState.LEASED, MessageState.PARKED):
        raise Conflict(f"nothing of {of} runs that could ask", run_id=run_id)
    known = asking.questions_outside_turn(tx, run_id)
    same = [each for each in known if each.text == text]
    if same:
        return same[-1]
    still = next((each for each in known if each.state is QuestionState.OPEN), None)
    if still is not None:
        raise Conflict(
            f"{of} has asked already and waits for the answer: {still.text}",
            run_id=run_id,
            question_id=still.question_id,
        )
    asked = Suspended(b"", text, tuple(options), kind=ASK_PARENT, call_id=OUTSIDE_TURN)
    if asking.is_for_parent(message, asked):  # it becomes a message to that agent
        check_root(mailbox.context, tx, message.root_id)
    return mailbox.questions.ask_tx(tx, message, asked)


def _check(text: str, options: Sequence[str]) -> None:
    """Raise ``BadRequest`` for a question that can't be shown or answered."""
    if not text.strip():
        raise BadRequest("the question is empty", field="question")
    if len(text) > MAX_TEXT_CHARS:
        raise BadRequest(
            f"the question has {len(text)} characters, the most are {MAX_TEXT_CHARS}",
            field="question",
        )
    if len(options) > MAX_OPTIONS:
        raise BadRequest(
            f"there are {len(options)} options, the most are {MAX_OPTIONS}", field="options"
        )
    if any(not 0 < len(each.strip()) <= MAX_OPTION_CHARS for each in options):
        raise BadRequest(
            f"each option must be a text of 1 to {MAX_OPTION_CHARS} characters", field="options"
        )
    if len({each.strip().casefold() for each in options}) < len(options):
        raise BadRequest("two of the options are the same", field="options")


def answer_tx(
    mailbox: Mailbox,
    tx: Tx,
    task: Task,
    text: str,
    by: Principal,
    question_id: str,
    shown_in: Conversation | None = None,
) -> Question:
    """Answer the open question of the task (``question_id``, if there are several).

    In a chat (``shown_in``), an answer that allows a call is accepted only if the whole call was
    shown there. Raises ``NotFound``, ``Conflict`` (also ``NotSeen``) and ``BadRequest``.
    """
    known = questions_of(tx, task.task_id)
    asked = [q for q in known if q.state is QuestionState.OPEN]
    if not question_id:
        if not asked:
            raise NotFound(f"task {task.task_id} asks nothing now", task_id=task.task_id)
        if len(asked) > 1:
            raise Conflict(
                f"task {task.task_id} has {len(asked)} open questions; name one",
                question_ids=[q.question_id for q in asked],
            )
        question_id = asked[0].question_id
    question = next((q for q in known if q.question_id == question_id), None)
    if question is None:
        raise NotFound(
            f"task {task.task_id} has no question {question_id}", question_id=question_id
        )
    seen = NOTHING_SEEN if shown_in is None else rendering.seen_in(tx, question, *shown_in)
    return answering.answer_tx(mailbox.context, tx, question_id, text, by, seen=seen)


def resumed_tx(
    mailbox: Mailbox,
    tx: Tx,
    task: Task,
    text: str,
    by: Principal,
    *,
    key: str,
    shown_in: Conversation | None = None,
) -> bool:
    """Use the text with which a task is resumed as the answer to its open question.

    This is done once for each ``key``. False if the task asks nothing. Raises ``Conflict`` if it
    asks several questions.
    """
    if key and rows.is_entered(tx, task.owner, key, kind="task"):
        return True
    if not text.strip() or all(
        q.state is not QuestionState.OPEN for q in questions_of(tx, task.task_id)
    ):
        return False
    if key:
        rows.enter_tx(tx, task.owner, key, task.task_id, "", mailbox.context.clock.now_ms())
    answer_tx(mailbox, tx, task, text, by, "", shown_in)
    return True


def questions_of(reader: Reader, task_id: str) -> list[Question]:
    """The questions of a task's runs, oldest first."""
    return reader.values(
        question_of,
        "SELECT q.* FROM questions q JOIN runs r ON r.run_id = q.message_id"
        " WHERE r.task_id = ? AND r.task_id <> '' ORDER BY q.question_id",
        (task_id,),
    )
