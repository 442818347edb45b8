"""A durable row that waits for a person or an agent; single use, with a deadline."""

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
"""The kind of a question about a call that waits for leave."""
QUESTION = "question"
"""The kind of a question that an agent has for people."""
ASK_PARENT = "ask_parent"
"""The kind of a question that a run has for whoever handed it on."""
UNCERTAIN = "uncertain"
"""The kind of a question about a call that was interrupted, of which nobody knows whether it happened."""
UNCERTAIN_WITHIN_S: Final = 900.0
"""How long such a question waits where no chat waits for the answer; then the work has failed."""
OF_AGENTS: Final = frozenset({QUESTION, ASK_PARENT})
"""The kinds that agents may answer, too."""

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
"""The arguments, as a JSON schema, of the tools by which a model asks a person."""


def leave_name(tool: str, version: str) -> str:
    """What leave is given for: a tool, and the form it had then where somebody else may change it.

    No tool's own name reads like another's with a version.
    """
    return f"{tool}@{version}" if version or "@" in tool else tool


def of_leave(name: str) -> tuple[str, str]:
    """The tool and the version that ``leave_name`` put together."""
    tool, at, version = name.rpartition("@")
    return (tool, version) if at else (name, "")


def call_digest(leave: str, args: Mapping[str, Any]) -> str:
    """What an approval is bound to: the tool in its form (``leave_name``) and all arguments."""
    canonical = json.dumps([leave, args], sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(canonical.encode("utf-8", "backslashreplace")).hexdigest()


@dataclass(frozen=True, slots=True)
class AskedCall:
    """A call as it is kept with its question, secrets masked.

    ``document`` is JSON: tool, title and all arguments. ``whole`` is the text that shows all of it;
    empty where the question's own text does. ``digest`` is that of the call as it was made.
    """

    document: str = ""
    digest: str = ""
    whole: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a person was shown before an answer: the digest of a whole call, and whether they were
    told what leave for every command means and agreed."""

    digest: str = ""
    is_confirmed: bool = False
    is_in_doubt: bool = False
    """It was to be shown where the answer comes from, and did not surely arrive there."""


NO_CALL: Final = AskedCall()
NOTHING_SEEN: Final = Seen()


class QuestionState(StrEnum):
    OPEN = "open"
    ANSWERED = "answered"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class Who(StrEnum):
    """Who may answer; an operator always may."""

    PEOPLE = "people"
    """Whoever may write where it was asked."""
    ASKER = "asker"
    """The person whose message led to it."""
    OPERATORS = "operators"


@dataclass(frozen=True, slots=True)
class Question:
    """``options`` empty = free text. ``kind``: question | ask_parent | uncertain (a blind call's
    outcome) | approval (``call_id`` of ``tool`` waits for leave; ``args`` is JSON where a person changed its
    arguments)."""

    question_id: str
    agent_id: str
    session_id: str
    message_id: str
    kind: str
    text: str
    options: tuple[str, ...]
    state: QuestionState
    answer: str
    asked_at: int
    deadline_at: int | None
    answered_at: int | None
    answered_by: str
    who: Who = Who.PEOPLE
    call_id: str = ""
    tool: str = ""
    args: str = ""
    version: str = ""
    """The form that the tool had when it was asked about; empty for those that don't change."""
    put_as: str = ""
    """The message by which an agent was asked; empty where people are."""
    call: AskedCall = NO_CALL
    """The call that waits for approval."""

    @property
    def leave(self) -> str:
        """What an answer gives leave for."""
        return leave_name(self.tool, self.version)


def may_answer(question: Question, asker: Principal, by: Principal) -> bool:
    """Whether ``by`` may answer what was asked about a message of ``asker``. No agent gives leave,
    not even for the work of its own tasks: it would give it to itself."""
    if by.is_operator:
        return True
    if by.kind in (PrincipalKind.AGENT, PrincipalKind.RUN) and question.kind not in OF_AGENTS:
        return False
    if by.kind is PrincipalKind.PERSON and by.role < PersonRole.USER:
        return False
    if question.who is Who.ASKER:
        return (by.kind, by.subject) == (asker.kind, asker.subject)
    return question.who is Who.PEOPLE
