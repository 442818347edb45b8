"""The meaning of a typed text in a chat with open questions. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentsup.channels.core.sending import cards
from agentsup.mailbox.messages import answer_options
from agentsup.mailbox.questions import Token, is_free, rendering
from agentsup.model.principal import Principal
from agentsup.model.question import Question

_QUOTE_CHARS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedText:
    """A text that a person typed in a chat, and that is no command."""

    conversation: str
    text: str
    principal: Principal
    press_id: str
    """Identifies the text, also after a restart."""
    reply_to: str | None = None
    """The platform's id of the message to which it replies."""
    quoted: str = ""
    """The text of that message."""
    language: str = ""
    is_private: bool = False


@dataclass(frozen=True, slots=True)
class AskedCard:
    """A question as a chat shows it, with the messages that show it and the part's body."""

    question: Question
    conversation: str
    platform_ids: tuple[str, ...]
    body: dict[str, Any]

    @property
    def language(self) -> str:
        """The language of our words in the question; empty if unknown."""
        return str(self.body.get("language") or "")


def replied_to(found: list[AskedCard], reply_to: str | None, quoted: str) -> list[AskedCard]:
    """Return the question to which a text replies, or nothing.

    A person may reply before the id of the question's message is stored: then it is the only
    question without an id that begins as the quoted text does.
    """
    if reply_to is None:
        return []
    known = [card for card in found if reply_to in card.platform_ids]
    unnumbered = [
        card for card in found if not card.platform_ids and _says(quoted, card.question.text)
    ]
    return known or (unnumbered if len(unnumbered) == 1 else [])


def plainly(found: Sequence[AskedCard], text: str, *, is_private: bool) -> list[AskedCard]:
    """Return the question that a text without a reply answers, or nothing.

    It is the only open question if it offers the text as an option or, in a private chat, accepts
    free text. Of several open questions, a private chat chooses only an unambiguous one.
    """
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
    """Return what a typed text means for that card, or None.

    It is one of the card's buttons, by label or number, or an option. Only a reply may have more
    text after the option, such as a denial with a reason.
    """
    question, offered = card.question, cards.offered(card.body)
    if not question.options:
        return text
    label = cards.option_of_text([label for label, _ in offered], text)
    if label is not None:
        return meant(question, next(meaning for each, meaning in offered if each == label))
    found = answer_options.meant(question, text)
    ends = {end for option in question.options for end in answer_options.ends_of(option)}
    return found if is_reply or found in {*question.options, *ends} else None


def meant(question: Question, meaning: str) -> str | Token | None:
    """Return what the data of a press means: an option, by its index, an answer that says until
    when, or a ``Token``."""
    if meaning in {*Token}:
        return Token(meaning)
    if "." in meaning:
        return rendering.term_chosen(question, meaning)
    index = int(meaning) if meaning.isdecimal() else -1
    return question.options[index] if 0 <= index < len(question.options) else None


def _says(quoted: str, asked: str) -> bool:
    """Whether the quoted text contains the question's beginning; only letters and digits count."""
    characters = "".join(each for each in asked if each.isalnum())[:_QUOTE_CHARS]
    return bool(characters) and characters in "".join(each for each in quoted if each.isalnum())
