"""How a part of the outbox reads in a chat: its text, its ending, and what answers mean. Pure.

What a press does is in its data: ``q:<question_id>:<option>``, ``again:<outbox_id>``,
``cancel:<message_id>``, or ``b:<token>`` for a button of a menu, whose meaning lies in the store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any

from agentsup.catalogue import load
from agentsup.channels.upload import UploadFile
from agentsup.mailbox.choices import answer_label
from agentsup.model.question import Question, QuestionState

__all__ = [
    "AGAIN",
    "CANCEL",
    "QUESTION",
    "attached_text",
    "clock_time",
    "ended_text",
    "is_plain",
    "offered",
    "option_of_emoji",
    "option_of_text",
    "outcome_text",
    "text_of",
]

QUESTION = "q:"
AGAIN = "again:"
CANCEL = "cancel:"

_YES = frozenset({"yes", "allow", "approve", "ok", "confirm", "continue", "go on"})
_NO = frozenset({"no", "deny", "reject", "refuse", "stop", "abort", "cancel"})
_EMOJI = {"👍": _YES, "❤": _YES, "👌": _YES, "🔥": _YES, "👎": _NO}


# -- text ------------------------------------------------------------------------------------------


def is_plain(kind: str, body: Mapping[str, Any]) -> bool:
    """Whether the text is shown as it is written: notices and replies of commands hold ids and
    indented lines that Markdown would spoil."""
    return bool(body.get("plain")) or kind == "notice"


def offered(body: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a question's part offers: each label, and what it means in the data of a press."""
    labels = [str(label) for label in body.get("options") or ()]
    meanings = body.get("choices") or range(len(labels))
    return [(label, str(meaning)) for label, meaning in zip(labels, meanings, strict=False)]


def attached_text(body: Mapping[str, Any]) -> UploadFile | None:
    """The text that goes with a part as a file, above its own."""
    given = body.get("attached")
    if not given:
        return None
    return UploadFile(None, str(given["name"]), str(given["text"]).encode("utf-8", "replace"))


def text_of(
    kind: str,
    body: Mapping[str, Any],
    *,
    timezone: tzinfo | None = None,
    language: str = "",
    mark: str = "/",
) -> str:
    """The text of a part. A question also says until when and how it can be answered.

    ``mark`` is what commands begin with where the part is read.
    """
    text = str(body.get("text") or "")
    if kind != "question":
        return text
    words = load()
    lines = [text]
    if (deadline_at := body.get("deadline_at")) is not None:
        when = clock_time(int(deadline_at), timezone)
        lines.append("⏳ " + words.text("question.until", language, when=when))
    if not body.get("options"):
        question_id = str(body.get("question_id", ""))
        how = words.text("question.reply", language, id=f"`{question_id}`")
        lines.append("✎ " + how.replace("/answer", f"{mark}answer").replace("/skip", f"{mark}skip"))
    return "\n\n".join(lines)


def ended_text(
    question: Question,
    *,
    timezone: tzinfo | None = None,
    language: str = "",
    is_plain: bool = False,
) -> str:
    """The text of a question that is closed: the question, and who answered what.

    In Markdown like the question, or ``is_plain``.
    """
    words = load()
    shown = str if is_plain else _inert
    if question.state is QuestionState.OPEN:
        body = {"text": question.text, "options": question.options}
        return text_of("question", body, timezone=timezone, language=language)
    if question.state is QuestionState.ANSWERED:
        who, answer = shown(question.answered_by), shown(answer_label(question, language))
        end = words.text("question.answered", language, who=who, answer=answer)
    elif question.answered_by:
        end = words.text("question.skipped", language, who=shown(question.answered_by))
    else:
        end = words.text(f"question.{question.state.value}", language)
    return f"{question.text}\n\n{end}"


def outcome_text(question: Question, *, timezone: tzinfo | None = None, language: str = "") -> str:
    """The honest word for a press or a text that came after the question was closed."""
    words = load()
    at = question.answered_at
    if at is None:
        at = question.deadline_at or question.asked_at
    when = clock_time(at, timezone)
    match question.state:
        case QuestionState.ANSWERED:
            return words.text(
                "press.late_answered",
                language,
                who=question.answered_by,
                when=when,
                answer=answer_label(question, language),
            )
        case QuestionState.CANCELLED:
            return words.text("press.late_cancelled", language, when=when)
        case QuestionState.EXPIRED if question.answered_by:
            who = question.answered_by
            return words.text("press.late_skipped", language, who=who, when=when)
        case _:
            return words.text("press.late_expired", language, when=when)


def clock_time(at_ms: int, timezone: tzinfo | None = None) -> str:
    """A wall time (ms) as a person reads it, with its zone."""
    return datetime.fromtimestamp(at_ms / 1000, timezone or UTC).strftime("%Y-%m-%d %H:%M %Z")


def _inert(text: str) -> str:
    """``text`` so that the Markdown renderer shows it as it is."""
    return "".join("\\" + c if c in "\\`*_[]()<>#~|!&" else c for c in " ".join(text.split()))


# -- answers that are no presses -------------------------------------------------------------------


def option_of_text(options: Sequence[str], text: str) -> str | None:
    """The option that a typed text means: its words in any case, or its number from 1."""
    said = " ".join(text.split()).casefold()
    for option in options:
        if " ".join(option.split()).casefold() == said:
            return option
    if said.isdecimal() and len(said) <= 3 and 1 <= int(said) <= len(options):
        return options[int(said) - 1]
    return None


def option_of_emoji(options: Sequence[str], emoji: str) -> str | None:
    """The option that a reaction means, where one option says yes and another no."""
    said = [(" ".join(option.split()).casefold(), option) for option in options]
    yes = [option for word, option in said if word in _YES]
    no = [option for word, option in said if word in _NO]
    meant = _EMOJI.get(emoji.rstrip("\ufe0f"))
    if meant is None or len(yes) != 1 or len(no) != 1:
        return None
    return yes[0] if meant is _YES else no[0]
