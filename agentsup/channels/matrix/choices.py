"""Buttons where the platform has none: numbered choices below a text, pressed by a number or by a
reaction that the bot has set already. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentsup.catalogue import words
from agentsup.channels.core.sending import cards
from agentsup.channels.matrix.render import Piece

_KEYCAPS = (*(f"{n}\ufe0f\u20e3" for n in range(1, 10)), "🔟")
_YES_NO = ("👍", "👎")
_MAX_LABEL_CHARS = 60
_SKIN_TONES = dict.fromkeys(range(0x1F3FB, 0x1F400))


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
    line = " ".join(label.split()) or "·"
    return line if len(line) <= _MAX_LABEL_CHARS else line[: _MAX_LABEL_CHARS - 1] + "…"


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
