"""What a typed text means below the questions of a chat. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentsup.channels import cards
from agentsup.mailbox import choices
from agentsup.mailbox.plain_answer import is_free
from agentsup.mailbox.showing import Token
from agentsup.model.question import Question

__all__ = ["AskedCard", "meant", "plainly", "replied_to", "typed_as"]

_QUOTE_CHARS = 60


@dataclass(frozen=True, slots=True)
class AskedCard:
    """A question as it stands in a chat. ``platform_ids``: the messages that show it."""

    question: Question
    conversation: str
    platform_ids: tuple[str, ...]
    body: dict[str, Any]

    @property
    def language(self) -> str:
        """What was asked in, as far as the question's own words go."""
        return str(self.body.get("language") or "")


def replied_to(found: list[AskedCard], reply_to: str | None, quoted: str) -> list[AskedCard]:
    """The question that a reply is to. A person may be quicker than the note of the message's id:
    then it is the one that has none yet and says what was quoted."""
    if reply_to is None:
        return []
    known = [card for card in found if reply_to in card.platform_ids]
    unnumbered = [
        card for card in found if not card.platform_ids and _says(quoted, card.question.text)
    ]
    return known or (unnumbered if len(unnumbered) == 1 else [])


def plainly(found: Sequence[AskedCard], text: str, *, is_private: bool) -> list[AskedCard]:
    """The question that a text means which replies to nothing: the only one that offers it, or in a
    private chat the only one that takes any words. Of several none is guessed."""
    cards_of = {card.question.question_id: card for card in found}.values()
    offering = [c for c in cards_of if c.question.options and typed_as(c, text) is not None]
    free = [c for c in cards_of if is_private and is_free(c.question)]
    if len(cards_of) == 1:
        return offering or free
    if not is_private or (offering and free):
        return []
    found_one = offering or free
    return found_one if len(found_one) == 1 else []


def typed_as(card: AskedCard, text: str, *, is_reply: bool = False) -> str | Token | None:
    """What a typed text means below that card: one of the things it offers, by their words or
    numbers, or an option. Only a reply can go on behind it, as a denial with a reason."""
    question, offered = card.question, cards.offered(card.body)
    if not question.options:
        return text
    label = cards.option_of_text([label for label, _ in offered], text)
    if label is not None:
        return meant(question, next(meaning for each, meaning in offered if each == label))
    found = choices.meant(question, text)
    return found if is_reply or found in question.options else None


def meant(question: Question, meaning: str) -> str | Token | None:
    """What the data of a press means: a number of the options, or that more is to be shown."""
    if meaning in {*Token}:
        return Token(meaning)
    index = int(meaning) if meaning.isdecimal() else -1
    return question.options[index] if 0 <= index < len(question.options) else None


def _says(quoted: str, asked: str) -> bool:
    """Whether the quoted message begins as the question does, whatever its marks became."""
    letters = "".join(each for each in asked if each.isalnum())[:_QUOTE_CHARS]
    return bool(letters) and letters in "".join(each for each in quoted if each.isalnum())
