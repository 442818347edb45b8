"""Buttons where the platform has none: numbered choices below a text, pressed by a number or by a
reaction that the bot has set already; and the stored events that have some.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agentsup.catalogue import words
from agentsup.channels.core.sending import cards
from agentsup.channels.matrix.received import CHANNEL
from agentsup.channels.matrix.render import Piece
from agentsup.mailbox.delivery import preview, shown_parts
from agentsup.store import Reader, Tx

_KEYCAPS = (*(f"{n}\ufe0f\u20e3" for n in range(1, 10)), "🔟")
_YES_NO = ("👍", "👎")
_MAX_LABEL_CHARS = 60
_SKIN_TONES = dict.fromkeys(range(0x1F3FB, 0x1F400))
BARE_MS: Final = 3_600_000
"""Time in which a bare number presses the last menu of a conversation."""


@dataclass(frozen=True, slots=True)
class ListedChoice:
    """One button. ``data`` says what it does; one with a ``url`` is a link and has no number."""

    label: str
    data: str = ""
    url: str = ""


def choices_of(
    kind: str, body: Mapping[str, Any], *, language: str = ""
) -> tuple[ListedChoice, ...]:
    """Return the choices that a part of the outbox offers, in the order of their numbers."""
    say = words(language)
    found = [
        ListedChoice(
            str(button.get("label") or ""),
            str(button.get("data") or ""),
            str(button.get("url") or ""),
        )
        for row in body.get("buttons") or ()
        for button in row
    ]
    question_id = str(body.get("question_id") or "")
    if kind == "question" and question_id:
        found += (
            ListedChoice(str(option), f"{cards.QUESTION}{question_id}:{meaning}")
            for option, meaning in cards.offered(body)
        )
    if "again" in body:
        found.append(ListedChoice(say("button.again"), f"{cards.AGAIN}{body['again']}"))
    if body.get("cancel"):
        found.append(ListedChoice(say("button.cancel"), f"{cards.CANCEL}{body['cancel']}"))
    return tuple(found)


def listed(choices: Sequence[ListedChoice], *, language: str = "") -> Piece:
    """Return the lines below a text that list the choices and say how to press one."""
    say = words(language)
    lines = [f"{number}. {_line(each.label)}" for number, each in enumerate(_pressable(choices), 1)]
    links = [f"{_line(each.label)}: {each.url}" for each in choices if each.url]
    parts = []
    if lines:
        parts.append("\n".join(lines))
    if links:
        parts.append("\n".join(links))
    if lines:
        shown = emojis(choices)
        how = "choice.yes_no" if shown == _YES_NO else "choice.how"
        parts.append(
            say(how, emoji=shown[0]) if len(lines) > 1 else say("choice.one", emoji=shown[0])
        )
    return Piece("\n\n".join(parts))


def _line(label: str) -> str:
    return preview(label, _MAX_LABEL_CHARS) or "·"


def _pressable(choices: Sequence[ListedChoice]) -> list[ListedChoice]:
    return [each for each in choices if each.data]


def emojis(choices: Sequence[ListedChoice]) -> tuple[str, ...]:
    """The reactions that the bot sets for people to press; the eleventh choice has its number only."""
    labels = [each.label for each in _pressable(choices)]
    if len(labels) == 2 and [cards.option_of_emoji(labels, each) for each in _YES_NO] == labels:
        return _YES_NO
    return _KEYCAPS[: len(labels)]


def by_emoji(choices: Sequence[ListedChoice], emoji: str) -> ListedChoice | None:
    """The choice that a reaction means: by its number, or as a clear yes or no."""
    found = _pressable(choices)
    bare = emoji.translate(_SKIN_TONES).replace("\ufe0f", "")
    for number, keycap in enumerate(_KEYCAPS[: len(found)]):
        if bare == keycap.replace("\ufe0f", ""):
            return found[number]
    labels = [each.label for each in found]
    option = cards.option_of_emoji(labels, bare)
    return None if option is None else found[labels.index(option)]


def by_text(choices: Sequence[ListedChoice], text: str) -> ListedChoice | None:
    """The choice that a typed text means: its number, or its words."""
    found = _pressable(choices)
    labels = [each.label for each in found]
    option = cards.option_of_text(labels, text.strip().removesuffix("."))
    return None if option is None else found[labels.index(option)]


def to_json(choices: Sequence[ListedChoice]) -> list[dict[str, str]]:
    """Return what is stored: the choices that can be pressed, in the order of the numbers."""
    return [{"label": each.label, "data": each.data} for each in _pressable(choices)]


def from_json(value: Sequence[Mapping[str, str]]) -> tuple[ListedChoice, ...]:
    """The reverse of ``to_json``."""
    return tuple(ListedChoice(each["label"], each["data"]) for each in value)


@dataclass(frozen=True, slots=True)
class ChoiceCard:
    """One row of ``matrix_cards``."""

    event_id: str
    conversation: str
    choices: tuple[ListedChoice, ...]
    text: str
    """The text above the choices."""
    at: int
    """Wall ms."""
    is_closed: bool = False
    """Whether the choices are closed. A late press is still answered."""


def put_tx(tx: Tx, agent_id: str, offer: ChoiceCard) -> None:
    """Store a card; harmless when repeated."""
    tx.execute(
        "INSERT INTO matrix_cards (agent_id, event_id, conversation, choices, text, at)"
        " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (
            agent_id,
            offer.event_id,
            offer.conversation,
            json.dumps(to_json(offer.choices), ensure_ascii=False),
            offer.text,
            offer.at,
        ),
    )


def close_card_tx(tx: Tx, agent_id: str, event_id: str) -> None:
    """Close the choices of an event."""
    tx.execute(
        "UPDATE matrix_cards SET is_closed = 1 WHERE agent_id = ? AND event_id = ?",
        (agent_id, event_id),
    )


def find(reader: Reader, agent_id: str, event_id: str) -> ChoiceCard | None:
    """Return the card of an event, open or closed."""
    row = reader.one(
        "SELECT * FROM matrix_cards WHERE agent_id = ? AND event_id = ?", (agent_id, event_id)
    )
    return None if row is None else _offer(row)


def newest_open(reader: Reader, agent_id: str, conversation: str, now: int) -> ChoiceCard | None:
    """Return a conversation's newest card if it is open and nothing was delivered after it.

    A card that is older than ``BARE_MS`` does not count. ``now`` is wall ms.
    """
    row = reader.one(
        "SELECT * FROM matrix_cards WHERE agent_id = ? AND conversation = ? AND at > ?"
        " ORDER BY at DESC LIMIT 1",
        (agent_id, conversation, now - BARE_MS),
    )
    if row is None or row["is_closed"]:
        return None
    card = _offer(row)
    is_past = shown_parts.is_followed(
        reader, agent_id, CHANNEL, conversation, card.event_id, card.at
    )
    return None if is_past else card


def fresh(reader: Reader, agent_id: str, since: int, limit: int) -> list[ChoiceCard]:
    """Return open cards made after ``since`` (wall ms), newest first."""
    rows = reader.all(
        "SELECT * FROM matrix_cards WHERE at > ? AND agent_id = ? AND is_closed = 0"
        " ORDER BY at DESC LIMIT ?",
        (since, agent_id, limit),
    )
    return [_offer(row) for row in rows]


def _offer(row: Any) -> ChoiceCard:
    return ChoiceCard(
        row["event_id"],
        row["conversation"],
        from_json(json.loads(row["choices"])),
        row["text"],
        row["at"],
        bool(row["is_closed"]),
    )
