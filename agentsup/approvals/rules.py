"""Decides from earlier questions and answers whether a call may happen. Pure.

The answered question is the only record of a decision, so no other record can disagree with it. A
call's id names message, tool and arguments, and ends with its number among equal calls.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from agentsup.mailbox.messages import ALWAYS, ANY, DENY, ONCE, RUN, pattern_option
from agentsup.model.hook import Allow, CallFacts, Deny
from agentsup.model.principal import Principal, PrincipalKind
from agentsup.model.question import AnswerableBy, Decision, QuestionState
from agentsup.model.tool import Safety

MAX_UNANSWERED = 3
"""The largest number of unanswered questions about the same call in a turn."""


class PermissionMode(StrEnum):
    """Permission modes that change what is asked; all others ask about what is dangerous."""

    BYPASS = "bypassPermissions"
    PLAN = "plan"
    DONT_ASK = "dontAsk"


@dataclass(frozen=True, slots=True)
class AskedCallState:
    """One question about a call of this run, and its state."""

    question_id: str
    call_id: str
    tool: str
    state: QuestionState
    decision: Decision | None = None
    answer_text: str = ""
    args: str = ""
    is_revoked: bool = False
    digest: str = ""
    """The digest of the call that was asked about; empty if an older version asked."""

    @property
    def is_allowed(self) -> bool:
        return self.decision is not None and self.decision.allows

    @property
    def is_final(self) -> bool:
        """Whether a person has decided, and has not revoked the grant since."""
        return self.state is QuestionState.ANSWERED and not (self.is_allowed and self.is_revoked)

    @property
    def edited(self) -> dict[str, Any] | None:
        """The arguments with which a person replaced the model's, or None."""
        return json.loads(self.args) if self.args else None


def grant_id(message_id: str, permission: str, pattern: str = "") -> str:
    """The id of a run's grant for a tool, or for a pattern of command lines: the same each time."""
    if not pattern:
        return f"grant-{message_id}-{permission}"
    return f"grant-{message_id}-{permission}-{hashlib.sha256(pattern.encode()).hexdigest()[:8]}"


def content_of(call_id: str) -> str:
    """The part of the id that equal calls of a turn have in common."""
    return call_id.rpartition(":")[0]


def at_once(call: CallFacts) -> Allow | Deny | None:
    """The verdict that follows from the agent's mode and the call's safety alone, or None."""
    if call.permission_mode == PermissionMode.BYPASS or call.safety is Safety.SAFE:
        return Allow()
    what = call.own_name or call.name
    if call.permission_mode == PermissionMode.PLAN:
        return Deny(f"{what} changes something, and {call.agent_name} is in plan mode")
    return Allow() if call.safety is Safety.MODERATE else None


def decide(
    call: CallFacts, asked: Sequence[AskedCallState], *, is_granted: bool, say: Callable[..., str]
) -> Allow | Deny | None:
    """The verdict on a call that is within its agent's ceiling of tools; None: ask.

    ``asked`` are the questions of its run, oldest first. ``is_granted``: a grant for this run or
    for good covers it. ``say`` gives the text of a denial.
    """
    settled = at_once(call)
    if settled is not None:
        return settled
    # Answers about a tool that has changed since, or about another call, don't count.
    same = [
        one
        for one in asked
        if content_of(one.call_id) == content_of(call.call_id) and is_about(one, call)
    ]
    own = next((one for one in reversed(same) if one.call_id == call.call_id), None)
    if own is not None and (own.is_final or own.state is QuestionState.EXPIRED):
        return _denial(own, say)
    if is_granted:
        return Allow()
    if call.permission_mode == PermissionMode.DONT_ASK:
        what = call.own_name or call.name
        return Deny(f"{what} is dangerous, and {call.agent_name} is not to ask about it")
    final = [one for one in same if one.is_final]
    if final:
        return _denial(final[-1], say)
    unanswered = [one for one in same if one.state is QuestionState.EXPIRED]
    return _denial(unanswered[-1], say) if len(unanswered) >= MAX_UNANSWERED else None


def _denial(one: AskedCallState, say: Callable[..., str]) -> Allow | Deny:
    if one.state is QuestionState.EXPIRED:
        return Deny(say("approval.unanswered"), "unanswered")
    if one.is_allowed:
        return Allow(one.edited)
    if one.answer_text:
        return Deny(say("approval.denied_because", why=one.answer_text), words=one.answer_text)
    return Deny(say("approval.denied"))


def is_about(one: AskedCallState, call: CallFacts) -> bool:
    """Whether the question was about the same tool in its present version, and about a call with
    these arguments."""
    return one.tool == call.permission and one.digest in ("", call.digest)


def pending(call: CallFacts, asked: Sequence[AskedCallState]) -> AskedCallState | None:
    """The open question about this very call."""
    return next(
        (
            one
            for one in asked
            if (one.call_id, one.state) == (call.call_id, QuestionState.OPEN)
            and is_about(one, call)
        ),
        None,
    )


def attempt(permission: str, asked: Sequence[AskedCallState]) -> int:
    """The number of the next question about the tool, counted since one was last answered."""
    count = 1
    for one in asked:
        if one.tool != permission:
            continue
        count = 1 if one.state is QuestionState.ANSWERED else count + 1
    return count


def who_decides(asker: Principal, *, has_people: bool) -> AnswerableBy:
    """The people who are asked: the person for whom the agent works, unless operators must decide.

    An agent or a run never approves a call of another one.
    """
    if asker.is_operator:
        return AnswerableBy.ASKER if asker.kind is PrincipalKind.PERSON else AnswerableBy.OPERATORS
    if asker.kind is not PrincipalKind.PERSON or has_people:
        return AnswerableBy.OPERATORS
    return AnswerableBy.ASKER


def options_for(
    asker: Principal,
    who: AnswerableBy,
    *,
    runs_commands: bool = False,
    patterns: Sequence[str] = (),
) -> tuple[str, ...]:
    """The options of an approval. Only an operator may give a grant that lasts.

    Such a grant is for command lines of one of the ``patterns``, or for all calls of the tool; the
    latter must be confirmed if the tool runs commands.
    """
    if who is not AnswerableBy.OPERATORS and not asker.is_operator:
        return (ONCE, RUN, DENY)
    by_pattern = map(pattern_option, patterns)
    return (ONCE, RUN, *by_pattern, ANY if runs_commands else ALWAYS, DENY)
