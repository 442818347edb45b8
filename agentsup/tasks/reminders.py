"""Reminders: tasks whose time puts their text into a chat. No model runs, so nothing has to be up.

The text and the record of the time are written in the transaction that settles the time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from agentsup.catalogue import words
from agentsup.mailbox.delivery import notices
from agentsup.mailbox.messages import RoleNow, keys
from agentsup.model.control import CommandButton, CommandButtons
from agentsup.model.errors import BadRequest
from agentsup.model.message import DeliverTo
from agentsup.model.task import Run, Task, TaskAction, TaskState
from agentsup.store import Reader, Tx
from agentsup.tasks import changes, rows, slot_times

Offer = Callable[[Tx, DeliverTo, CommandButtons, int], Mapping[str, Any]]
"""``offer(tx, chat, buttons, at)``: what a notice in that chat must contain to show these buttons;
empty if the chat has none. ``at`` is wall ms."""

SHOWN_ID_CHARS = 8


def offer_nothing(tx: Tx, chat: DeliverTo, buttons: CommandButtons, at: int) -> Mapping[str, Any]:
    """Show no buttons."""
    del tx, chat, buttons, at
    return {}


def check_has_runs(task: Task) -> None:
    """Raise ``BadRequest`` for a reminder, which has no turns."""
    if task.does is TaskAction.TELL:
        raise BadRequest(
            f"task {task.task_id} is a reminder and has no turns: give it another time",
            field="task_id",
        )


def addressed(reader: Reader, task: Task, role_now: RoleNow) -> Task:
    """The reminder with a chat as its target.

    That is the chat where the work was asked for, else the one in which its person last talked to
    the agent.
    """
    chat = keys.root_chat(task.deliver_to)
    if chat is None:
        channel, conversation = notices.latest_conversation(
            reader, task.agent_id, task.owner.person, role_now
        )
        chat = DeliverTo("chat", channel=channel, conversation=conversation)
    return replace(task, deliver_to=replace(chat, agent_id=chat.agent_id or task.agent_id))


def tell_tx(tx: Tx, task: Task, run: Run, offer: Offer, *, at: int) -> None:
    """Put the text of a reminder into the outbox of its chat, and record ``run`` as its time.

    A single reminder is done with that. ``at`` is wall ms.
    """
    assert run.slot_at is not None, "a reminder is told at a time of its schedule"
    times = tx.one("SELECT kind, zone FROM schedules WHERE task_id = ?", (task.task_id,))
    assert times is not None, "a reminder has a schedule"
    rows.add_run_tx(tx, run)
    chat, say = task.deliver_to, words(task.owner.language)
    text = say("remind.text", text=task.prompt)
    if at - run.slot_at > slot_times.GRACE_MS:
        local = datetime.fromisoformat(slot_times.local_time(run.slot_at, times["zone"]))
        text += "\n" + say("remind.late", when=f"{local:%Y-%m-%d %H:%M}")
    ways: CommandButtons = (
        (
            CommandButton(say("remind.done_button"), f"/remind done {task.task_id}", once=True),
            CommandButton(say("remind.hour"), f"/remind later {task.task_id} 1h", once=True),
            CommandButton(
                say("remind.tomorrow"), f"/remind later {task.task_id} tomorrow", once=True
            ),
        ),
    )
    facts = offer(tx, chat, ways, at)
    if not facts:
        text += "\n" + say("remind.how_later", id=task.task_id[-SHOWN_ID_CHARS:])
    notices.notify_tx(
        tx,
        message_id=run.run_id,
        agent_id=chat.agent_id or task.agent_id,
        session_id="",
        text=text,
        at=at,
        address=(chat.channel, chat.conversation),
        facts={"plain": True, **facts},
    )
    state = TaskState.DONE if times["kind"] == "at" else TaskState.TODO
    tx.execute(
        "UPDATE tasks SET runs = ?, current_run = ?, started_at = coalesce(started_at, ?)"
        " WHERE task_id = ?",
        (run.run_no, run.run_id, at, task.task_id),
    )
    changes.set_tx(tx, replace(task, runs=run.run_no), state, at)


def again_tx(tx: Tx, task: Task, at: int) -> None:
    """Record that a reminder which was sent is due again later."""
    if task.does is TaskAction.TELL and task.state is not TaskState.TODO:
        changes.set_tx(tx, task, TaskState.TODO, at)
