"""Work in the background: what turns of a conversation have handed on and nobody waits for.

It is found by its way back (``deliver_to``), which leads through the sessions of those who handed it
on to the chat in which people read of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from agentsup.mailbox.notices import name_of, preview
from agentsup.mailbox.rows import OPEN_SQL, encode, message_of
from agentsup.model.control import BackgroundWork
from agentsup.model.message import DeliverTo, Kind, Message
from agentsup.store.database import Reader, Tx

__all__ = [
    "Conversation",
    "final_chat",
    "hops",
    "keep_tx",
    "of_conversation",
    "reporting_to_session",
    "runs_for_agent",
]

_NAME_CHARS = 60


@dataclass(frozen=True, slots=True)
class Conversation:
    """A chat with an agent."""

    agent_id: str
    channel: str
    conversation: str


def hops(to: DeliverTo) -> Iterator[DeliverTo]:
    """The way back, from the first place to the last."""
    at: DeliverTo | None = to
    while at is not None:
        yield at
        at = at.then


def final_chat(to: DeliverTo) -> DeliverTo | None:
    """The chat at the end of the way back; None where there is none."""
    *_, last = hops(to)
    return last if last.kind == "chat" else None


def reporting_to_session(reader: Reader, session_id: str) -> list[Message]:
    """The open messages whose result comes into that session, at some remove; no runs of tasks,
    which are their owners'."""
    return _untasked(
        reader,
        (
            message
            for message in _open_with(reader, session_id)
            if any(hop.session_id == session_id for hop in hops(message.deliver_to))
        ),
    )


def runs_for_agent(reader: Reader, agent_id: str) -> list[Message]:
    """The open runs whose result comes into a session of that agent, likewise."""
    return _untasked(
        reader,
        (
            message
            for message in _open_with(reader, agent_id)
            if message.kind in (Kind.TASK, Kind.REPLY)
            and any(
                hop.kind == "mailbox" and hop.agent_id == agent_id
                for hop in hops(message.deliver_to)
            )
        ),
    )


def of_conversation(reader: Reader, place: Conversation) -> tuple[BackgroundWork, ...]:
    """The work in the background whose result comes into that chat, the oldest first; nothing that
    a turn waits for."""
    wanted = (place.channel, place.conversation)
    found = []
    for message in _open_with(reader, place.conversation):
        chat = final_chat(message.deliver_to)
        if chat is None or (chat.channel, chat.conversation) != wanted:
            continue
        if (chat.agent_id or message.agent_id) == place.agent_id and _is_background(message):
            found.append(message)
    return _described(reader, found)


def keep_tx(tx: Tx, messages: Sequence[Message], scope: str, epoch: int) -> None:
    """A stop of ``scope`` leaves these: what comes of them is not refused because of it."""
    tx.executemany(
        "UPDATE messages SET epochs = json_set(epochs, ?, ?) WHERE seq = ?",
        [(f'$."{scope}"', epoch, message.seq) for message in messages],
    )


def _open_with(reader: Reader, text: str) -> list[Message]:
    """Open messages in whose way back ``text`` stands; they are few, and only these are read."""
    rows = reader.all(
        f"SELECT * FROM messages INDEXED BY messages_open WHERE {OPEN_SQL}"  # noqa: S608 - a constant
        " AND instr(deliver_to, ?) ORDER BY seq",
        (encode(text)[1:-1],),
    )
    return [message_of(row) for row in rows]  # type: ignore[arg-type]  # Row is a mapping in all but name


def _is_background(message: Message) -> bool:
    """Whether nobody waits for it: it was handed on by a turn, or is a task that a person gave."""
    to = message.deliver_to
    if to.kind == "chat":
        return message.kind is Kind.TASK
    return to.kind == "mailbox" and not to.waited


def _described(reader: Reader, messages: Sequence[Message]) -> tuple[BackgroundWork, ...]:
    """As people read of it: a task, whose runs may wait behind one another, once."""
    tasks = _tasks_of(reader, messages)
    found: dict[str, BackgroundWork] = {}
    for message in messages:
        task_id = tasks.get(message.message_id, "")
        work = BackgroundWork(
            task_id or message.message_id,
            preview(message.summary or message.text, _NAME_CHARS),
            name_of(reader, message.agent_id),
            message.state.value,
            is_task=bool(task_id),
        )
        found.setdefault(work.work_id, work)
    return tuple(found.values())


def _tasks_of(reader: Reader, messages: Sequence[Message]) -> dict[str, str]:
    """The task of each run among the messages; empty for a run of its own."""
    rows = reader.all(
        "SELECT run_id, task_id FROM runs WHERE run_id IN (SELECT value FROM json_each(?))",
        (encode([message.message_id for message in messages if message.kind is Kind.TASK]),),
    )
    return {row["run_id"]: row["task_id"] for row in rows}


def _untasked(reader: Reader, messages: Iterable[Message]) -> list[Message]:
    found = list(messages)
    tasks = _tasks_of(reader, found)
    return [message for message in found if not tasks.get(message.message_id)]
