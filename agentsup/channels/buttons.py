"""Buttons of menus: what a press stands for lies in the store, the platform carries a token.

A token can't be guessed, belongs to one chat of one bot and outlives a restart. One that changes
something works once, also if the press is handled again after a crash.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from agentsup.kit.entropy import Entropy
from agentsup.model.control import Button
from agentsup.model.principal import PersonRole, Principal
from agentsup.store.database import Reader, Tx

__all__ = [
    "PREFIX",
    "Pressed",
    "Refusal",
    "Refused",
    "handled",
    "mint_tx",
    "note_tx",
    "press_tx",
    "release_tx",
]

PREFIX = "b:"
KEPT_MS = 30 * 86_400_000
_PRESSES_KEPT_MS = 3 * 86_400_000
_PRUNE_AT_ONCE = 200


class Refusal(StrEnum):
    """Why a press has no effect."""

    UNKNOWN = "unknown"
    ELSEWHERE = "elsewhere"
    VIEWER = "viewer"
    OPERATORS = "operators"
    USED = "used"


@dataclass(frozen=True, slots=True)
class Pressed:
    """A press that counts."""

    token: str
    label: str
    command: str
    confirm: str
    """To be asked first; such a press changes nothing yet."""
    origin: str
    """The command whose menu this was, to go back to; may be empty."""
    once: bool
    operator: bool
    is_repeated: bool = False
    """This very press was taken before, and what it changes was perhaps done: after a crash, or
    where the command ended the life that ran it. It must not be done again."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A press that doesn't; ``by`` and ``at`` (wall ms) say who was first, for ``USED``."""

    reason: Refusal
    by: str = field(default="")
    at: int = 0


def mint_tx(
    tx: Tx,
    rows: Sequence[Sequence[Button]],
    *,
    agent_id: str,
    conversation: str,
    origin: str,
    at: int,
    entropy: Entropy,
    channel: str,
    kept_ms: int = KEPT_MS,
) -> list[list[dict[str, str]]]:
    """Store what ``rows`` stand for; returns rows of ``{"label", "data"}`` for an outbox body.

    ``origin`` is the command that the menu answers. Forgets what is past its time, a little at a
    time.
    """
    _prune_tx(tx, at)
    return [
        [
            {
                "label": button.label,
                "data": PREFIX
                + _mint_one_tx(
                    tx, button, (agent_id, channel, conversation), origin, at, entropy, kept_ms
                ),
            }
            for button in row
        ]
        for row in rows
        if row
    ]


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
) -> Pressed | Refused:
    """Take one press: who may, in which chat, and whether it was used up.

    A button that changes something is used up by this, in this transaction, unless a question is
    asked first. ``press_id`` names the press for good.
    """
    token = data.removeprefix(PREFIX)
    row = tx.one("SELECT * FROM buttons WHERE token = ?", (token,))
    if row is None or row["expires_at"] <= at:
        return Refused(Refusal.UNKNOWN)
    if (row["agent_id"], row["channel"], row["conversation"]) != (agent_id, channel, conversation):
        return Refused(Refusal.ELSEWHERE)
    if principal.role < PersonRole.USER:
        return Refused(Refusal.VIEWER)
    action: dict[str, Any] = json.loads(row["action"])
    if row["who"] == "operators" and not principal.is_operator:
        return Refused(Refusal.OPERATORS)
    if row["used_at"] is not None and row["used_press"] != press_id:
        return Refused(Refusal.USED, row["used_by"], row["used_at"])
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
    """The command behind that press was refused and changed nothing: it may be pressed again."""
    tx.execute(
        "UPDATE buttons SET used_at = NULL, used_by = '', used_press = ''"
        " WHERE token = ? AND used_press = ?",
        (token, press_id),
    )


def handled(reader: Reader, press_id: str) -> str | None:
    """What the person was told about a press (or a typed answer) handled before, or None."""
    found: str | None = reader.scalar("SELECT outcome FROM presses WHERE press_id = ?", (press_id,))
    return found


def note_tx(tx: Tx, press_id: str, outcome: str, at: int) -> None:
    """Remember a press as handled, in the transaction of its effect."""
    tx.execute(
        "INSERT INTO presses (press_id, outcome, at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        (press_id, outcome, at),
    )
    tx.execute("DELETE FROM presses WHERE at < ?", (at - _PRESSES_KEPT_MS,))


def _mint_one_tx(
    tx: Tx,
    button: Button,
    place: tuple[str, str, str],
    origin: str,
    at: int,
    entropy: Entropy,
    kept_ms: int,
) -> str:
    token = entropy.token()
    action = {"command": button.command, "confirm": button.confirm, "origin": origin}
    tx.execute(
        "INSERT INTO buttons (token, agent_id, channel, conversation, who, label, action, once,"
        " made_at, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            token,
            *place,
            "operators" if button.operator else "people",
            button.label,
            json.dumps({k: v for k, v in action.items() if v}, ensure_ascii=False),
            int(button.once),
            at,
            at + kept_ms,
        ),
    )
    return token


def _prune_tx(tx: Tx, at: int) -> None:
    tx.execute(
        "DELETE FROM buttons WHERE token IN"
        " (SELECT token FROM buttons WHERE expires_at < ? LIMIT ?)",
        (at, _PRUNE_AT_ONCE),
    )
