"""The texts of outbox parts in a chat, and the meaning of answers. Pure.

The data of a press says what it does: ``q:<question_id>:<option>``, ``again:<outbox_id>``,
``cancel:<message_id>``, or ``b:<token>`` for a button of a menu, whose command is in the store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any

from agentsup.catalogue import words
from agentsup.channels.core.files.upload import UploadFile
from agentsup.mailbox.messages import answer_label
from agentsup.model.question import ClosedReason, Question, QuestionState

QUESTION = "q:"
AGAIN = "again:"
CANCEL = "cancel:"

_YES = frozenset({"yes", "allow", "approve", "ok", "confirm", "continue", "go on"})
_NO = frozenset({"no", "deny", "reject", "refuse", "stop", "abort", "cancel"})
_EMOJI = {"👍": _YES, "❤": _YES, "👌": _YES, "🔥": _YES, "👎": _NO}


# -- text ------------------------------------------------------------------------------------------


def is_plain(kind: str, body: Mapping[str, Any]) -> bool:
    """Whether the text is shown without Markdown.

    Notices and replies of commands contain ids and indented lines that Markdown would spoil.
    """
    return bool(body.get("plain")) or kind == "notice"


def offered(body: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the buttons of a question's part: each label, and its meaning in a press's data."""
    labels = [str(label) for label in body.get("options") or ()]
    meanings = body.get("choices") or range(len(labels))
    return [(label, str(meaning)) for label, meaning in zip(labels, meanings, strict=False)]


def attached_text(body: Mapping[str, Any]) -> UploadFile | None:
    """Return the long text that is sent as a file above the part's own text, if there is one."""
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
    """Return the text of a part. A question also says until when and how it can be answered.

    ``mark`` is the character with which commands begin on the platform.
    """
    text = str(body.get("text") or "")
    if kind != "question":
        return text
    say = words(language)
    lines = [text]
    if (deadline_at := body.get("deadline_at")) is not None:
        when = clock_time(int(deadline_at), timezone)
        lines.append("⏳ " + say("question.until", when=when))
    if not body.get("options"):
        question_id = str(body.get("question_id", ""))
        how = say("question.reply", id=f"`{question_id}`")
        lines.append("✎ " + how.replace("/answer", f"{mark}answer").replace("/skip", f"{mark}skip"))
    return "\n\n".join(lines)


def ended_text(
    question: Question,
    *,
    timezone: tzinfo | None = None,
    language: str = "",
    is_plain: bool = False,
) -> str:
    """Return the text of a closed question: the question, and who answered what.

    It is Markdown like the question, or plain text with ``is_plain``.
    """
    say = words(language)
    shown = str if is_plain else _inert
    if question.state is QuestionState.OPEN:
        body = {"text": question.text, "options": question.options}
        return text_of("question", body, timezone=timezone, language=language)
    if question.state is QuestionState.ANSWERED:
        who, answer = shown(question.answered_by), shown(answer_label(question, language))
        end = say("question.answered", who=who, answer=answer)
    elif question.closed_reason is ClosedReason.SKIPPED:
        end = say("question.skipped", who=shown(question.answered_by))
    else:
        end = say(f"question.{question.state.value}")
    return f"{question.text}\n\n{end}"


def outcome_text(question: Question, *, timezone: tzinfo | None = None, language: str = "") -> str:
    """Return the reply to a press or a text that came after the question was closed (P8)."""
    say = words(language)
    at = question.answered_at
    if at is None:
        at = question.deadline_at or question.asked_at
    when = clock_time(at, timezone)
    match question.state:
        case QuestionState.ANSWERED:
            answer = answer_label(question, language)
            return say("press.late_answered", who=question.answered_by, when=when, answer=answer)
        case QuestionState.CANCELLED:
            return say("press.late_cancelled", when=when)
        case QuestionState.EXPIRED if question.closed_reason is ClosedReason.SKIPPED:
            return say("press.late_skipped", who=question.answered_by, when=when)
        case _:
            return say("press.late_expired", when=when)


def clock_time(at_ms: int, timezone: tzinfo | None = None) -> str:
    """Format a wall time (ms) for people, with its zone."""
    return datetime.fromtimestamp(at_ms / 1000, timezone or UTC).strftime("%Y-%m-%d %H:%M %Z")


def _inert(text: str) -> str:
    """Escape ``text`` so that the Markdown renderer shows it unchanged."""
    return "".join("\\" + c if c in "\\`*_[]()<>#~|!&" else c for c in " ".join(text.split()))


# -- answers that are no presses -------------------------------------------------------------------


def option_of_text(options: Sequence[str], text: str) -> str | None:
    """Return the option that a typed text means: its words in any case, or its number from 1."""
    said = " ".join(text.split()).casefold()
    for option in options:
        if " ".join(option.split()).casefold() == said:
            return option
    if said.isdecimal() and len(said) <= 3 and 1 <= int(said) <= len(options):
        return options[int(said) - 1]
    return None


def option_of_emoji(options: Sequence[str], emoji: str) -> str | None:
    """Return the option that a reaction means, if exactly one option says yes and one says no."""
    said = [(" ".join(option.split()).casefold(), option) for option in options]
    yes = [option for word, option in said if word in _YES]
    no = [option for word, option in said if word in _NO]
    meant = _EMOJI.get(emoji.rstrip("\ufe0f"))
    if meant is None or len(yes) != 1 or len(no) != 1:
        return None
    return yes[0] if meant is _YES else no[0]
