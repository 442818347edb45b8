"""Models that operators chose for single chats and topics, instead of the agent's own.

A topic without a choice has that of its chat. An edit of the agent changes no choice: a model that
its new provider can't serve is not used, and the chat is told.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentsup.mailbox.messages.keys import chat_key
from agentsup.model.errors import Conflict
from agentsup.model.message import Message, MessageKind
from agentsup.store import Reader, Tx

MOST = 500
"""The most choices for one agent."""
_COLUMNS = "key, model, service, chosen_by, chosen_at, notified"


@dataclass(frozen=True, slots=True)
class ChosenModel:
    """The choice for the chat or topic with that key."""

    key: str
    model: str
    service: str
    """The service that was to answer (``recovery.breaker.provider_of``)."""
    chosen_by: str = ""
    chosen_at: int = 0
    notified: int = 0
    """Whether the chat was told that the model is not used."""


def keys_of(channel: str, conversation: str) -> tuple[str, str]:
    """The key of a conversation and that of its whole chat; the same unless it is a topic."""
    whole = conversation.partition("/")[0]
    return chat_key(channel, conversation), chat_key(channel, whole)


def keys_of_turn(message: Message) -> tuple[str, str]:
    """The keys of the chat of a turn on ``message``; empty for any other work."""
    to = message.deliver_to
    is_here = message.is_said_in_chat or message.kind is MessageKind.REPLY
    return keys_of(to.channel, to.conversation) if is_here and to.kind == "chat" else ("", "")


def chosen(reader: Reader, agent_id: str, keys: tuple[str, str]) -> ChosenModel | None:
    """The choice that holds in a conversation: its own, else that of its chat."""
    row = reader.one(
        f"SELECT {_COLUMNS} FROM chat_models WHERE agent_id = ? AND key IN (?, ?)"  # noqa: S608 - a constant
        " ORDER BY length(key) DESC LIMIT 1",
        (agent_id, *keys),
    )
    return None if row is None else ChosenModel(*row)


def all_of(reader: Reader, agent_id: str) -> list[ChosenModel]:
    """Every choice for chats of the agent, by key."""
    rows = reader.all(
        f"SELECT {_COLUMNS} FROM chat_models WHERE agent_id = ? ORDER BY key",  # noqa: S608 - a constant
        (agent_id,),
    )
    return [ChosenModel(*row) for row in rows]


def choose_tx(tx: Tx, agent_id: str, choice: ChosenModel) -> None:
    """Note a choice in place of an earlier one. Raises ``Conflict`` if there are too many."""
    others = tx.scalar(
        "SELECT count(*) FROM chat_models WHERE agent_id = ? AND key <> ?", (agent_id, choice.key)
    )
    if others >= MOST:
        raise Conflict(
            f"{MOST} chats of this agent have a model of their own already; let one of them go "
            "back to the agent's with /model default there"
        )
    tx.execute(
        f"INSERT OR REPLACE INTO chat_models (agent_id, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, 0)",  # noqa: S608 - a constant
        (
            agent_id,
            choice.key,
            choice.model,
            choice.service,
            choice.chosen_by,
            choice.chosen_at,
        ),
    )


def drop_tx(tx: Tx, agent_id: str, key: str) -> bool:
    """Forget the choice of exactly that key. Whether there was one."""
    gone = tx.execute("DELETE FROM chat_models WHERE agent_id = ? AND key = ?", (agent_id, key))
    return bool(gone.rowcount)


def note_notice_tx(tx: Tx, agent_id: str, key: str) -> bool:
    """Record the notice that the chat's model is not used; False if there was one before."""
    noted = tx.execute(
        "UPDATE chat_models SET notified = 1 WHERE agent_id = ? AND key = ? AND notified = 0",
        (agent_id, key),
    )
    return bool(noted.rowcount)


def move_tx(tx: Tx, agent_id: str, key: str, to: str) -> None:
    """The chat has another key from now on; a choice that was made there already stays."""
    for each in all_of(tx, agent_id):
        whole, slash, topic = each.key.partition("/")
        if whole == key:
            tx.execute(
                "UPDATE OR IGNORE chat_models SET key = ? WHERE agent_id = ? AND key = ?",
                (f"{to}{slash}{topic}", agent_id, each.key),
            )
