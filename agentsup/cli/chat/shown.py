"""Items of a chat, as it shows them one after another."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class ShownKind(StrEnum):
    """The kinds of things to show."""

    WELCOME = "welcome"
    PERSON = "person"
    CORRECTED = "corrected"
    """A person has edited a text that is queued."""
    ANSWER = "answer"
    RESULT = "result"
    """The result of a task, which comes unasked; its text names the task."""
    NOTICE = "notice"
    WARNING = "warning"
    """A warning of the agent when the chat begins."""
    FILE = "file"
    QUESTION = "question"
    REPLY = "reply"
    """The reply to a command."""
    ERROR = "error"
    BEGIN = "begin"
    DELTA = "delta"
    TOOL = "tool"
    END = "end"
    PICTURE = "picture"
    """The whole text so far of a running turn; replaces what was shown of it."""
    HELP = "help"
    """The reply to ``/help``."""
    COMMANDS = "commands"
    """The reply to a question of the client itself, which names the commands."""


FORMS: Final = {
    ShownKind.PERSON: ("{person}: {text}", "cyan"),
    ShownKind.CORRECTED: ("{person} (corrected): {text}", "cyan"),
    ShownKind.ANSWER: ("{who}: {text}", ""),
    ShownKind.RESULT: ("{who}, in the background: {text}", "green"),
    ShownKind.NOTICE: ("* {text}", "dim"),
    ShownKind.WARNING: ("* {text}", "yellow"),
    ShownKind.FILE: ("{who}: [file {text}]", ""),
    ShownKind.QUESTION: ("{who} asks: {text}", "bold"),
    ShownKind.REPLY: ("{text}", ""),
    ShownKind.HELP: ("{text}", ""),
    ShownKind.ERROR: ("! {text}", "red"),
}
"""The form of each kind that has a text, and its colour in a terminal."""


@dataclass(frozen=True, slots=True)
class ShownItem:
    """One thing to show. ``old``: it happened before this client connected."""

    kind: ShownKind
    text: str = ""
    who: str = ""
    message_id: str = ""
    ok: bool = True
    old: bool = False
    options: tuple[str, ...] = ()
    is_cut: bool = False
    """The beginning of the text is no longer available."""
    state: str = ""
    """Of the agent in a welcome, of the call of a tool; else empty."""

    @property
    def sentence(self) -> str:
        """The text with who says it, for the kinds in ``FORMS``."""
        return FORMS[self.kind][0].format(text=self.text, who=self.who, person=self.who or "you")
