"""The state of a chat client: unconfirmed texts, the last event that was seen, open questions.

Pure: it takes frames and returns what to show. It serves P1 and P2 at the person's end: a text
stays pending until the daemon confirms it, and is sent again under the same id after a reconnect.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final


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


_REMEMBERED: Final = 1000
"""Number of message ids that are remembered, for events that come in another order than they
happened."""
_RETRIED: Final = frozenset({"not_ready", "store_unavailable"})
"""Refusals that a later attempt may not get; the text stays pending."""


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """A question that waits for this person."""

    question_id: str
    message_id: str
    options: tuple[str, ...]
    meanings: tuple[str, ...] = ()
    """The answer to send for each option; empty: its number."""


class HelloRefused(Exception):
    """The daemon refused the conversation."""


@dataclass(slots=True)
class ChatState:
    """One client in one conversation with ``agent``."""

    agent: str
    name: str
    new_id: Callable[[], str]
    warns: bool = True
    """Whether to show the agent's warnings at the beginning."""
    seq: int | None = None
    pending: dict[str, str] = field(default_factory=dict)
    """Texts by their id, oldest first, until the daemon confirms them."""
    _files: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    """The uploaded files of pending texts."""
    awaited: dict[str, None] = field(default_factory=dict)
    """Messages that were accepted and are not answered yet, oldest first."""
    questions: dict[str, OpenQuestion] = field(default_factory=dict)
    _behind: set[str] = field(default_factory=set)
    """Awaited messages that wait until a question is answered."""
    _mine: deque[str] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    _ended: deque[str] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    _quiet: set[str] = field(default_factory=set)

    # -- to the daemon -----------------------------------------------------------------------------

    def hello(self) -> dict[str, Any]:
        """The first frame of a connection: agent, conversation, and the last event seen."""
        frame: dict[str, Any] = {"type": "hello", "agent": self.agent, "conversation": self.name}
        if self.seq is not None:
            frame["after"] = self.seq
        return frame

    def say(
        self, text: str, *, quiet: bool = False, files: Sequence[dict[str, str]] = ()
    ) -> dict[str, Any]:
        """The frame for a text the person typed; it is pending from now on.

        A bare number chooses an option of the newest open question. ``quiet``: its reply is for the
        client itself. ``files`` were uploaded before, and go with the text.
        """
        say_id = self.new_id()
        self.pending[say_id] = text if files else self._as_answer(text)
        if files:
            self._files[say_id] = [*files]
        if quiet:
            self._quiet.add(say_id)
        return self._say_frame(say_id)

    def unsent(self) -> Iterator[dict[str, Any]]:
        """Frames of all pending texts, for a new connection."""
        for say_id in list(self.pending):
            yield self._say_frame(say_id)

    @property
    def is_waiting(self) -> bool:
        """Whether a text is unconfirmed or unanswered and does not itself wait for the person."""
        asking = {question.message_id for question in self.questions.values()}
        behind = self._behind if self.questions else set()
        return bool(self.pending) or any(m not in asking | behind for m in self.awaited)

    @property
    def unconfirmed(self) -> list[str]:
        """The texts that the person typed and the daemon did not confirm."""
        return [text for say_id, text in self.pending.items() if say_id not in self._quiet]

    def _say_frame(self, say_id: str) -> dict[str, Any]:
        files = {"files": self._files[say_id]} if say_id in self._files else {}
        return {"type": "say", "id": say_id, "text": self.pending[say_id], **files}

    def _confirmed(self, say_id: str) -> None:
        self.pending.pop(say_id, None)
        self._files.pop(say_id, None)

    def _as_answer(self, text: str) -> str:
        number = text.strip()
        if not (number.isascii() and number.isdecimal()):
            return text
        for question in reversed(self.questions.values()):
            if 1 <= int(number) <= len(question.options):
                meant = (
                    question.meanings[int(number) - 1]
                    if len(question.meanings) == len(question.options)
                    else ""
                )
                # ``/answer`` counts options from 1. A meaning in words (show more) is no answer.
                if not meant or meant.isdecimal():
                    del self.questions[question.question_id]
                    meant = str(int(meant) + 1) if meant else str(int(number))
                return f"/answer {question.question_id} {meant}"
        return text

    # -- from the daemon ---------------------------------------------------------------------------

    def take(self, frame: Mapping[str, Any]) -> list[ShownItem]:
        """Apply a frame; returns what to show for it. Raises ``HelloRefused``."""
        match frame.get("type"):
            case "welcome":
                return self._welcome(frame)
            case "event":
                return self._event(frame["event"], old=False)
            case "accepted":
                return self._accepted(frame)
            case "reply":
                return self._reply(frame)
            case "error":
                return self._error(frame)
            case "live" | "snapshot":
                return [_picture(self.agent, turn) for turn in frame.get("turns", ())]
            case ("begin" | "end") as kind:
                return [ShownItem(ShownKind(kind), who=self.agent, message_id=frame["message_id"])]
            case "delta":
                return [ShownItem(ShownKind.DELTA, frame["text"], self.agent, frame["message_id"])]
            case "tool":
                state, message_id = str(frame["state"]), frame["message_id"]
                name = " ".join(filter(None, (frame["name"], frame.get("to"), state)))
                return [ShownItem(ShownKind.TOOL, name, self.agent, message_id, state=state)]
            case "retry":
                return [ShownItem(ShownKind.NOTICE, frame["text"], message_id=frame["message_id"])]
            case _:
                return []

    def closed_elsewhere(self, open_ids: frozenset[str]) -> None:
        """Forget questions that are not open any more."""
        for question_id in [q for q in self.questions if q not in open_ids]:
            del self.questions[question_id]

    def has_ended(self, message_id: str) -> None:
        """Record that a message has ended; nothing more is awaited of it."""
        self.awaited.pop(message_id, None)
        self._behind.discard(message_id)
        self._ended.append(message_id)
        for question in [q for q in self.questions.values() if q.message_id == message_id]:
            del self.questions[question.question_id]

    def _welcome(self, frame: Mapping[str, Any]) -> list[ShownItem]:
        is_first = self.seq is None
        is_reset = bool(frame.get("reset"))
        self.agent = frame.get("agent") or self.agent
        shown: list[ShownItem] = []
        for event in frame.get("history", ()):
            shown += self._event(event, old=True)
        state, is_back = str(frame.get("agent_state", "")), not (is_first or is_reset)
        shown.append(ShownItem(ShownKind.WELCOME, who=self.agent, old=is_back, state=state))
        if is_first and self.warns:
            shown += [ShownItem(ShownKind.WARNING, each) for each in frame.get("warnings") or ()]
        self.seq = frame["seq"]
        if is_reset:
            self.awaited.clear()
            text = "the daemon has another store than before; what it did not keep is gone"
            shown.append(ShownItem(ShownKind.NOTICE, text, ok=False))
        # These turns began before this client connected, or went on while it was away.
        return shown + [_picture(self.agent, turn) for turn in frame.get("live") or ()]

    def _event(self, event: Mapping[str, Any], *, old: bool) -> list[ShownItem]:
        seq = event["seq"]
        if not old:
            if self.seq is not None and seq <= self.seq:
                return []
            self.seq = seq
        data = event.get("data") or {}
        if event["type"] == "chat.in":
            return self._person(event, data, old=old)
        if event["type"] == "chat.edited":
            who, text = str(data.get("from", "")), str(data.get("text", ""))
            return [ShownItem(ShownKind.CORRECTED, text, who, event["message_id"], old=old)]
        if event["type"] == "chat.out":
            return self._out(event["message_id"], data, old=old)
        if event["type"] == "question.closed":
            self.questions.pop(str(data.get("question_id")), None)
        return []

    def _person(
        self, event: Mapping[str, Any], data: Mapping[str, Any], *, old: bool
    ) -> list[ShownItem]:
        text, message_id = str(data.get("text", "")), event["message_id"]
        is_mine = message_id in self._mine or text in self.pending.values()
        if is_mine and not old:
            return []
        files = "".join(f" [{name}]" for name in data.get("files") or ())
        return [
            ShownItem(
                ShownKind.PERSON, text + files, str(data.get("from", "")), message_id, old=old
            )
        ]

    def _out(self, message_id: str, data: Mapping[str, Any], *, old: bool) -> list[ShownItem]:
        kind, text = data.get("kind"), str(data.get("text", ""))
        about: dict[str, Any] = {"who": self.agent, "message_id": message_id, "old": old}
        if data.get("possible_repeat"):
            text = f"(may be a repeat) {text}"
        if kind == "question":
            options = tuple(str(option) for option in data.get("options") or ())
            question_id = str(data.get("question_id", ""))
            meanings = tuple(str(each) for each in data.get("choices") or ())
            self.questions[question_id] = OpenQuestion(question_id, message_id, options, meanings)
            if attached := data.get("attached"):
                text = f"{attached.get('text', '')}\n\n{text}"
            return [ShownItem(ShownKind.QUESTION, text, options=options, **about)]
        if kind == "file":
            self._ended_by(message_id, 1)
            return [
                ShownItem(ShownKind.FILE, str(data.get("path") or data.get("name") or ""), **about)
            ]
        if kind == "notice":
            outcome = data.get("outcome")
            if outcome:
                self._ended_by(message_id, int(data.get("count") or 1))
            return [ShownItem(ShownKind.NOTICE, text, ok=outcome in {None, "ok"}, **about)]
        self._ended_by(message_id, 1)
        is_result = data.get("of_work") is not None
        return [ShownItem(ShownKind.RESULT if is_result else ShownKind.ANSWER, text, **about)]

    def _ended_by(self, message_id: str, count: int) -> None:
        """Record the end of a message, and of the ``count - 1`` awaited messages before it."""
        before: list[str] = []
        if count > 1 and message_id in self.awaited:
            for awaited in self.awaited:
                before.append(awaited)
                if awaited == message_id:
                    break
        for ended in [*before[-count:], message_id]:
            self.has_ended(ended)

    def _accepted(self, frame: Mapping[str, Any]) -> list[ShownItem]:
        self._confirmed(frame["id"])
        message_id = frame["message_id"]
        self._mine.append(message_id)
        if message_id not in self._ended:
            self.awaited[message_id] = None
        if frame.get("duplicate"):
            return []
        if frame.get("waits_for"):
            self._behind.add(message_id)
        text = _waits(frame.get("position") or 0, frame.get("eta_s"), frame.get("waits_for"))
        return [ShownItem(ShownKind.NOTICE, text, message_id=message_id)] if text else []

    def _reply(self, frame: Mapping[str, Any]) -> list[ShownItem]:
        is_help = self.pending.get(frame["id"], "").strip() == "/help"
        self._confirmed(frame["id"])
        kind = ShownKind.HELP if is_help else ShownKind.REPLY
        if frame["id"] in self._quiet:
            self._quiet.discard(frame["id"])
            kind = ShownKind.COMMANDS
        return [ShownItem(kind, frame["text"], ok=bool(frame.get("ok", True)))]

    def _error(self, frame: Mapping[str, Any]) -> list[ShownItem]:
        problem = frame.get("problem") or {}
        detail = str(problem.get("detail", "the daemon refused it"))
        say_id = frame.get("id", "")
        if not say_id:
            if self.seq is None:
                raise HelloRefused(detail)
            return [ShownItem(ShownKind.ERROR, detail, ok=False)]
        if problem.get("code") in _RETRIED:
            return []  # stays pending: the daemon is ending; the next connection sends it again
        self._confirmed(say_id)
        if say_id in self._quiet:
            self._quiet.discard(say_id)
            return []
        return [ShownItem(ShownKind.ERROR, f"not sent: {detail}", ok=False)]


def _waits(position: int, eta_s: float | None, asked: Mapping[str, Any] | None) -> str:
    """Why a text is not answered at once; empty if nothing is before it."""
    if asked is not None:
        options = "".join(f"\n  {n}. {each}" for n, each in enumerate(asked["labels"], start=1))
        how = "type its number" if options else f"/answer {asked['id']} TEXT answers it"
        skip = "" if asked["kind"] == "approval" else f", /skip {asked['id']} goes on without"
        return f"waits until this is answered: {asked['text']}{options}\n  ({how}{skip}; /stop drops both)"
    if not position:
        return ""
    eta = f", about {eta_s:.0f} s" if eta_s and eta_s >= 1 else ""
    return f"waits behind {position} other{'s' if position > 1 else ''}{eta}; /stop drops it"


def _picture(agent: str, turn: Mapping[str, Any]) -> ShownItem:
    return ShownItem(
        ShownKind.PICTURE,
        str(turn.get("text", "")),
        agent,
        turn["message_id"],
        is_cut=bool(turn.get("shortened")),
    )
