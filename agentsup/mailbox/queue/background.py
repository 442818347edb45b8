"""Delegated work: what ends with a turn, and background work, for which nobody waits.

Everything that a turn waits for ends with it, at any depth, because nobody needs it any more. Its
background work goes on, unless the turn was a run: with a run ends everything that it has started.

Background work is found by its ``deliver_to`` chain, which leads through the sessions of the
delegating turns to the chat in which people get the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agentsup.mailbox.delivery.notices import preview
from agentsup.mailbox.messages.rows import FOLLOWING_SQL, OPEN_SQL, encode, message_of, tasks_of
from agentsup.model.control import BackgroundWork
from agentsup.model.message import TERMINAL, DeliverTo, Message, MessageKind, MessageState
from agentsup.store import Reader, Tx, name_of

_NAME_CHARS = 60


def hops(to: DeliverTo) -> Iterator[DeliverTo]:
    """The ``deliver_to`` chain, from the first target to the last."""
    at: DeliverTo | None = to
    while at is not None:
        yield at
        at = at.then


def final_chat(to: DeliverTo) -> DeliverTo | None:
    """The chat at the end of the chain; None if there is none."""
    *_, last = hops(to)
    return last if last.kind == "chat" else None


def reporting_to_session(reader: Reader, session_id: str) -> list[Message]:
    """The open messages whose result goes, directly or indirectly, to that session.

    Runs of tasks are left out: they belong to their owners.
    """
    found = [
        message
        for message in _open_with(reader, session_id)
        if any(hop.session_id == session_id for hop in hops(message.deliver_to))
    ]
    return _untasked(reader, found)


def runs_for_agent(reader: Reader, agent_id: str) -> list[Message]:
    """As ``reporting_to_session``, the open runs and replies for any session of that agent."""
    found = [
        message
        for message in _open_with(reader, agent_id)
        if message.kind in (MessageKind.TASK, MessageKind.REPLY)
        and any(
            hop.kind == "mailbox" and hop.agent_id == agent_id for hop in hops(message.deliver_to)
        )
    ]
    return _untasked(reader, found)


def of_conversation(
    reader: Reader, agent_id: str, channel: str, conversation: str
) -> tuple[BackgroundWork, ...]:
    """The background work whose result goes to that chat of the agent, the oldest first.

    Work that a turn waits for is left out.
    """
    found = []
    for message in _open_with(reader, conversation):
        chat = final_chat(message.deliver_to)
        if chat is None or (chat.channel, chat.conversation) != (channel, conversation):
            continue
        if (chat.agent_id or message.agent_id) == agent_id and _is_background(message):
            found.append(message)
    return _described(reader, found)


def keep_tx(tx: Tx, messages: Sequence[Message], scope: str, epoch: int) -> None:
    """Exempt messages from a stop of ``scope``: their results are not refused because of it."""
    tx.executemany(
        "UPDATE messages SET epochs = json_set(epochs, ?, ?) WHERE seq = ?",
        [(f'$."{scope}"', epoch, message.seq) for message in messages],
    )


def _open_with(reader: Reader, text: str) -> list[Message]:
    """Open messages whose ``deliver_to`` contains ``text``; only these few are read."""
    return reader.values(
        message_of,
        f"SELECT * FROM messages INDEXED BY messages_open WHERE {OPEN_SQL}"  # noqa: S608 - a constant
        " AND instr(deliver_to, ?) ORDER BY seq",
        (encode(text)[1:-1],),
    )


def _is_background(message: Message) -> bool:
    """Whether nobody waits for it: a turn delegated it, or it is a task of a person."""
    to = message.deliver_to
    if to.kind == "chat":
        return message.kind is MessageKind.TASK
    return to.kind == "mailbox" and not to.waited


def _described(reader: Reader, messages: Sequence[Message]) -> tuple[BackgroundWork, ...]:
    """The list for people; a task with several queued runs is listed once."""
    tasks = tasks_of(reader, messages)
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


def _untasked(reader: Reader, messages: Sequence[Message]) -> list[Message]:
    tasks = tasks_of(reader, messages)
    return [message for message in messages if not tasks.get(message.message_id)]


_NO_TASK = "NOT EXISTS (SELECT 1 FROM runs r WHERE r.run_id = m.message_id AND r.task_id <> '')"
"""Runs of tasks go on: a task belongs to its owner."""


def ending_with(
    reader: Reader, messages: Sequence[Message], *, background: bool = False
) -> list[Message]:
    """The open messages that end with the turns on ``messages``, in the order of delegation.

    With ``background``, the background work of these turns is included.
    """
    known = {message.message_id for message in messages}
    found: list[Message] = []
    turns: list[Message] = [m for m in messages if m.state is not MessageState.QUEUED or m.attempts]
    runs = [m.message_id for m in turns if m.kind is MessageKind.TASK]
    whole = [m.message_id for m in turns] if background else runs
    while turns:
        below = [
            message
            for message in _below(reader, [m.message_id for m in turns], whole, runs)
            if message.message_id not in known
        ]
        known.update(message.message_id for message in below)
        found += (message for message in below if message.state not in TERMINAL)
        turns = below
        # All messages below a run belong to it, also the turns on results that come back to it.
        whole = runs = [
            m.message_id for m in below if m.kind in (MessageKind.TASK, MessageKind.REPLY)
        ]
    return found


def _below(
    reader: Reader, turns: Sequence[str], whole: Sequence[str], runs: Sequence[str]
) -> list[Message]:
    """The messages directly below these turns.

    These are: what ``turns`` wait for; all runs that ``whole`` have started, ended or not, because
    an ended run may have open work below it; and requests of ``runs`` to other agents.
    """
    return reader.values(
        message_of,
        "SELECT m.* FROM messages m WHERE m.kind = 'task'"  # noqa: S608 - constants
        f" AND {FOLLOWING_SQL} AND in_reply_to IN (SELECT value FROM json_each(?1)) AND {_NO_TASK}"
        f" AND {OPEN_SQL} AND deliver_to ->> '$.waited'"
        f" UNION SELECT m.* FROM messages m WHERE {FOLLOWING_SQL}"
        f" AND in_reply_to IN (SELECT value FROM json_each(?2)) AND {_NO_TASK}"
        " UNION SELECT m.* FROM waits w JOIN messages m ON m.message_id = w.target_id"
        f" WHERE w.waiter_id IN (SELECT value FROM json_each(?1)) AND m.in_reply_to = w.waiter_id AND m.kind = 'chat' AND m.{OPEN_SQL}"
        f" UNION SELECT m.* FROM messages m INDEXED BY messages_open WHERE {OPEN_SQL}"
        " AND m.kind = 'chat' AND in_reply_to IN (SELECT value FROM json_each(?3))"
        " ORDER BY seq",
        (encode(list(turns)), encode(list(whole)), encode(list(runs))),
    )
