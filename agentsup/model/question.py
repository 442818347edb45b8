"""A question: a durable row that waits for a person or an agent; single use, with a deadline."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from agentsup.model.principal import PersonRole, Principal, PrincipalKind

APPROVAL = "approval"
"""The kind of a question about a call that waits for an approval."""
QUESTION = "question"
"""The kind of a question that an agent has for people."""
ASK_PARENT = "ask_parent"
"""The kind of a question from a run to the agent that delegated it."""
UNCERTAIN = "uncertain"
"""The kind of a question about an interrupted call whose outcome is unknown."""
PATTERN_MARK: Final = "pattern:"
"""The beginning of an option that grants command lines of a pattern."""
UNCERTAIN_WITHIN_S: Final = 900.0
"""The seconds for which such a question waits if no chat waits for the answer; then the work has
failed."""
OF_AGENTS: Final = frozenset({QUESTION, ASK_PARENT})
"""The kinds of questions that agents may answer too."""

ASKED_BY_MODELS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "type": "object",
        "properties": {
            "text": {"type": "string", "description": "The question, complete in itself."},
            "options": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Answers to choose from; leave it out for a free answer.",
            },
        },
        "required": ["text"],
        "additionalProperties": False,
    }
)
"""The arguments, as a JSON Schema, of the tools by which a model asks a person."""


def permission_key(tool: str, version: str) -> str:
    """The key of a grant: a tool, and its version if somebody else may change the tool.

    No tool's own name equals another tool's key with a version.
    """
    return f"{tool}@{version}" if version or "@" in tool else tool


def parse_permission_key(name: str) -> tuple[str, str]:
    """The tool and the version that ``permission_key`` joined."""
    tool, at, version = name.rpartition("@")
    return (tool, version) if at else (name, "")


def call_digest(permission: str, args: Mapping[str, Any]) -> str:
    """The digest to which an approval is bound: the tool's ``permission_key`` and all arguments."""
    canonical = json.dumps([permission, args], sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(canonical.encode("utf-8", "backslashreplace")).hexdigest()


@dataclass(frozen=True, slots=True)
class AskedCall:
    """A call as stored with its question, with secrets masked.

    ``document`` is JSON: tool, title and all arguments. ``whole`` is the text that shows all of it;
    empty if the question's own text does. ``digest`` is that of the call as it was made.
    """

    document: str = ""
    digest: str = ""
    whole: str = ""


@dataclass(frozen=True, slots=True)
class SeenCall:
    """A person's view of a call before an answer: the digest of a whole call, and whether they
    confirmed what an approval of every command means."""

    digest: str = ""
    is_confirmed: bool = False
    is_in_doubt: bool = False
    """Whether it was to be shown where the answer comes from, but may not have arrived."""


NO_CALL: Final = AskedCall()
NOTHING_SEEN: Final = SeenCall()


class QuestionState(StrEnum):
    OPEN = "open"
    ANSWERED = "answered"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class ClosedReason(StrEnum):
    """The reason why a question was closed."""

    ANSWERED = "answered"
    DEADLINE = "deadline"
    """Nobody answered in time."""
    SKIPPED = "skipped"
    """Somebody who may answer it let the work go on without an answer (``answered_by``)."""
    WITHDRAWN = "withdrawn"
    """Its work has ended or was stopped."""

    @property
    def state(self) -> QuestionState:
        """The state of a question that was closed so."""
        return _CLOSED[self]


_CLOSED: Final[Mapping[ClosedReason, QuestionState]] = MappingProxyType(
    {
        ClosedReason.ANSWERED: QuestionState.ANSWERED,
        ClosedReason.DEADLINE: QuestionState.EXPIRED,
        ClosedReason.SKIPPED: QuestionState.EXPIRED,
        ClosedReason.WITHDRAWN: QuestionState.CANCELLED,
    }
)


class GrantEnd(StrEnum):
    """Until when a grant by pattern holds."""

    RUN = "run"
    """Until the answer to the message is finished."""
    TODAY = "today"
    """Until midnight, by the agent's time zone."""
    DAYS_30 = "30d"
    REVOKED = "revoked"
    """Until somebody revokes it, or nothing has used it for a year."""


class Decision(StrEnum):
    """The decision of an answer about a call. An answer to any other question is a text."""

    ONCE = "once"
    RUN = "run"
    ALWAYS = "always"
    PATTERN = "pattern"
    """Calls with command lines of a pattern are granted. The answer's text is the pattern, behind
    its ``GrantEnd`` and a colon if it ends by itself."""
    DENY = "deny"
    """The reason, if one was given, is the answer's text."""
    TEXT = "text"

    @property
    def allows(self) -> bool:
        """Whether the call may happen."""
        return self in (Decision.ONCE, Decision.RUN, Decision.ALWAYS, Decision.PATTERN)


def joined_answer(decision: Decision | None, text: str) -> str:
    """A decision and its text as one text, as people give it: ``deny: why``, ``pattern:make *``."""
    match decision:
        case None | Decision.TEXT:
            return text
        case Decision.PATTERN:
            return f"{PATTERN_MARK}{text}"
        case Decision.DENY if text:
            return f"{decision.value}: {text}"
        case _:
            return decision.value


class AnswerableBy(StrEnum):
    """Who may answer; an operator always may."""

    PEOPLE = "people"
    """Anybody who may write where it was asked."""
    ASKER = "asker"
    """The person whose message led to it."""
    OPERATORS = "operators"


@dataclass(frozen=True, slots=True)
class Question:
    """A stored question; ``options`` empty means free text.

    ``kind``: question | ask_parent | uncertain (a blind call's outcome) | approval (``call_id`` of
    ``tool`` waits for an approval; ``args`` is JSON if a person changed its arguments).
    """

    question_id: str
    agent_id: str
    session_id: str
    message_id: str
    kind: str
    text: str
    options: tuple[str, ...]
    state: QuestionState
    answer_text: str
    """The text of the answer, without the decision: see ``answer``."""
    asked_at: int
    deadline_at: int | None
    answered_at: int | None
    answered_by: str
    who: AnswerableBy = AnswerableBy.PEOPLE
    call_id: str = ""
    tool: str = ""
    args: str = ""
    version: str = ""
    """The tool's version at the time of the question; empty for tools that don't change."""
    put_as: str = ""
    """The id of the message by which an agent was asked; empty if people are asked."""
    call: AskedCall = NO_CALL
    """The call that waits for approval."""
    decision: Decision | None = None
    """None as long as it is not answered."""
    closed_reason: ClosedReason | None = None
    """None as long as it is open."""

    @property
    def answer(self) -> str:
        """The answer as it is given and shown in one text (``joined_answer``)."""
        return joined_answer(self.decision, self.answer_text)

    @property
    def permission(self) -> str:
        """The permission key that an answer approves."""
        return permission_key(self.tool, self.version)


def may_answer(question: Question, asker: Principal, by: Principal) -> bool:
    """Whether ``by`` may answer a question about a message of ``asker``.

    No agent approves a call, not even for the work of its own tasks: it would approve its own call.
    """
    if by.is_operator:
        return True
    if by.kind in (PrincipalKind.AGENT, PrincipalKind.RUN) and question.kind not in OF_AGENTS:
        return False
    if by.kind is PrincipalKind.PERSON and by.role < PersonRole.USER:
        return False
    if question.who is AnswerableBy.ASKER:
        # Work of an operator needs an operator: not its asker, who may have lost that role.
        is_less = question.kind not in OF_AGENTS and asker.is_operator
        return not is_less and (by.kind, by.subject) == (asker.kind, asker.subject)
    return question.who is AnswerableBy.PEOPLE
