"""The keyboard of a part of the outbox in Telegram. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentsup.catalogue import words
from agentsup.channels.core.sending.cards import AGAIN, CANCEL, QUESTION, offered

MAX_LABEL_CHARS = 60
_NARROW_CHARS = 12
"""Options up to this length share a row."""
_PER_ROW = 3
_PLACEHOLDER_MAX = 64


def markup(
    kind: str, body: Mapping[str, Any], *, is_private: bool, language: str = ""
) -> dict[str, Any] | None:
    """Return the ``reply_markup`` of a part, or None. It belongs to the part's last message."""
    say = words(language)
    rows = [list(row) for row in body.get("buttons") or ()]
    question_id = str(body.get("question_id") or "")
    if kind == "question" and question_id:
        rows += _option_rows(question_id, offered(body), is_approval="choices" in body)
        if not rows:
            placeholder = say("question.placeholder")[:_PLACEHOLDER_MAX]
            # In a group, ``force_reply`` would open a reply for everybody.
            return (
                {"force_reply": True, "input_field_placeholder": placeholder}
                if is_private
                else None
            )
    if "again" in body:
        label = say("button.again")
        rows.append([{"label": label, "data": f"{AGAIN}{body['again']}"}])
    if body.get("cancel"):
        label = say("button.cancel")
        rows.append([{"label": label, "data": f"{CANCEL}{body['cancel']}"}])
    if rows or not is_private:
        return inline_keyboard(rows) if rows else None
    if wanted := body.get("create_bot"):
        key = {"text": _label(wanted["label"]), "request_managed_bot": wanted["request"]}
        return {"keyboard": [[key]], "resize_keyboard": True, "one_time_keyboard": True}
    return {"remove_keyboard": True} if body.get("ends_keyboard") else None


def inline_keyboard(rows: Sequence[Sequence[Mapping[str, str]]]) -> dict[str, Any]:
    """Return rows of ``{"label", "data" | "url"}`` in the form of the Bot API."""
    return {
        "inline_keyboard": [
            [
                {
                    "text": _label(button["label"]),
                    **(
                        {"url": button["url"]}
                        if "url" in button
                        else {"callback_data": button["data"]}
                    ),
                }
                for button in row
            ]
            for row in rows
        ]
    }


def _option_rows(
    question_id: str, options: Sequence[tuple[str, str]], *, is_approval: bool
) -> list[list[dict[str, str]]]:
    buttons = [
        {"label": label, "data": f"{QUESTION}{question_id}:{meaning}"} for label, meaning in options
    ]
    denial = [buttons.pop()] if is_approval else []
    wide = any(len(label) > _NARROW_CHARS for label, _ in options)
    width = 1 if wide else _PER_ROW
    rows = [buttons[i : i + width] for i in range(0, len(buttons), width)]
    # The denial has a row of its own, after the options that allow the call.
    return [*rows, denial] if denial else rows


def _label(text: str) -> str:
    line = " ".join(text.split())
    if not any(c.isprintable() and not c.isspace() for c in line):
        line = "·"  # the platform refuses a button without a visible label
    return line if len(line) <= MAX_LABEL_CHARS else line[: MAX_LABEL_CHARS - 1] + "…"
