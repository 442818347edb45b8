"""Notices to people in a bot's chats, and their buttons: the platform has only a token of each.

The command of a button is in the store. A token cannot be guessed, belongs to one chat of one bot
and is valid across restarts. A button that changes something works once, also if its press is
handled again after a crash.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.mailbox.delivery import outbox
from agentsup.model.control import CommandButton
from agentsup.model.principal import PersonRole, Principal
from agentsup.store import Reader, Tx

PREFIX = "b:"
STORED_MS = 30 * 86_400_000
_PRESSES_STORED_MS = 3 * 86_400_000
_PRUNE_AT_ONCE = 200
ONLY_WITH: Final = "only_with"
"""Key of a part's body: the platform id of the person with whom the bot must be alone there when
the part is sent. Otherwise it is not sent, and the operator is told in another way."""


class PressRefusal(StrEnum):
    """Why a press has no effect."""

    UNKNOWN = "unknown"
    ELSEWHERE = "elsewhere"
    VIEWER = "viewer"
    OPERATORS = "operators"
    USED = "used"


@dataclass(frozen=True, slots=True)
class Pressed:
    """A press that was accepted."""

    token: str
    label: str
    command: str
    confirm: str
    """The question to ask first, or empty; such a press changes nothing yet."""
    origin: str
    """The command that showed the menu, for the way back; may be empty."""
    once: bool
    operator: bool
    is_repeated: bool = False
    """The same press was accepted before, and its command perhaps run: after a crash, or if the
    command ended the life that ran it. The command must not be run again."""


@dataclass(frozen=True, slots=True)
class RefusedPress:
    """A press that was not accepted; for ``USED``, ``by`` and ``at`` (wall ms) name the first."""

    reason: PressRefusal
    by: str = field(default="")
    at: int = 0


def mint_tx(
    tx: Tx,
    rows: Sequence[Sequence[CommandButton]],
    *,
    agent_id: str,
    conversation: str,
    origin: str,
    at: int,
    entropy: Entropy,
    channel: str,
) -> list[list[dict[str, str]]]:
    """Store the buttons of ``rows``; return rows of ``{"label", "data"}`` for an outbox body.

    ``origin`` is the command whose reply has the  Also removes a few expired
    """
    tx.execute(
        "DELETE FROM buttons WHERE token IN"
        " (SELECT token FROM buttons WHERE expires_at < ? LIMIT ?)",
        (at, _PRUNE_AT_ONCE),
    )
    address = (agent_id, channel, conversation)

    def mint(button: CommandButton) -> dict[str, str]:
        token = entropy.token()
        action = {"command": button.command, "confirm": button.confirm, "origin": origin}
        tx.execute(
            "INSERT INTO buttons (token, agent_id, channel, conversation, who, label, action, once,"
            " made_at, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                token,
                *address,
                "operators" if button.operator else "people",
                button.label,
                json.dumps({k: v for k, v in action.items() if v}, ensure_ascii=False),
                int(button.once),
                at,
                at + STORED_MS,
            ),
        )
        return {"label": button.label, "data": PREFIX + token}

    return [[mint(button) for button in row] for row in rows if row]


def press_tx(
    tx: Tx,
    data: str,
    *,
    agent_id: str,
    conversation: str,
    principal: Principal,
    press_id: str,
    at: int,
    channel: str,
) -> Pressed | RefusedPress:
    """Accept or refuse a press, by person, chat and earlier presses.

    A button that changes something is used up in this transaction, unless a question is asked
    first. ``press_id`` identifies the press, also after a restart.
    """
    token = data.removeprefix(PREFIX)
    row = tx.one("SELECT * FROM buttons WHERE token = ?", (token,))
    if row is None or row["expires_at"] <= at:
        return RefusedPress(PressRefusal.UNKNOWN)
    if (row["agent_id"], row["channel"], row["conversation"]) != (agent_id, channel, conversation):
        return RefusedPress(PressRefusal.ELSEWHERE)
    if principal.role < PersonRole.USER:
        return RefusedPress(PressRefusal.VIEWER)
    action: dict[str, Any] = json.loads(row["action"])
    if row["who"] == "operators" and not principal.is_operator:
        return RefusedPress(PressRefusal.OPERATORS)
    if row["used_at"] is not None and row["used_press"] != press_id:
        return RefusedPress(PressRefusal.USED, row["used_by"], row["used_at"])
    pressed = Pressed(
        token=token,
        label=row["label"],
        command=action["command"],
        confirm=action.get("confirm", ""),
        origin=action.get("origin", ""),
        once=bool(row["once"]),
        operator=row["who"] == "operators",
    )
    if row["used_at"] is not None:
        return replace(pressed, is_repeated=True)
    if pressed.once and not pressed.confirm:
        tx.execute(
            "UPDATE buttons SET used_at = ?, used_by = ?, used_press = ? WHERE token = ?",
            (at, principal.label, press_id, token),
        )
    return pressed


def release_tx(tx: Tx, token: str, press_id: str) -> None:
    """Make a button usable again, because the command of that press was refused."""
    tx.execute(
        "UPDATE buttons SET used_at = NULL, used_by = '', used_press = ''"
        " WHERE token = ? AND used_press = ?",
        (token, press_id),
    )


def handled(reader: Reader, press_id: str) -> str | None:
    """Return the reply to a press (or typed answer) that was handled before, or None."""
    found: str | None = reader.scalar("SELECT outcome FROM presses WHERE press_id = ?", (press_id,))
    return found


def note_tx(tx: Tx, press_id: str, outcome: str, at: int) -> None:
    """Record a press as handled, in the transaction of its effect."""
    tx.execute(
        "INSERT INTO presses (press_id, outcome, at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        (press_id, outcome, at),
    )
    tx.execute("DELETE FROM presses WHERE at < ?", (at - _PRESSES_STORED_MS,))


@dataclass(frozen=True, slots=True)
class ChatNotices:
    """Puts the notices of one agent's bot into the outbox."""

    agent_id: str
    channel: str
    clock: Clock
    entropy: Entropy

    def add_tx(
        self,
        tx: Tx,
        conversation: str,
        text: str,
        *,
        message_id: str = "",
        **facts: Any,
    ) -> None:
        """Put plain text for people into the outbox; ``facts`` are further fields of the part.

        ``message_id`` is that of the message that it is about, if any.
        """
        outbox.add_tx(
            tx,
            agent_id=self.agent_id,
            channel=self.channel,
            conversation=conversation,
            kind="notice",
            body={"text": text, "plain": True, **facts},
            at=self.clock.now_ms(),
            message_id=message_id,
        )

    def mint_tx(
        self,
        tx: Tx,
        conversation: str,
        rows: Sequence[Sequence[CommandButton]],
        origin: str = "",
    ) -> list[list[dict[str, str]]]:
        """Store buttons, and return them for an outbox body; see ``mint_tx``."""
        return mint_tx(
            tx,
            rows,
            agent_id=self.agent_id,
            conversation=conversation,
            origin=origin,
            at=self.clock.now_ms(),
            entropy=self.entropy,
            channel=self.channel,
        )
