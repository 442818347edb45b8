"""Whether a call may happen, from what was asked and answered before it. Pure.

The answered question is the decision: nothing else is kept of it, so nothing can disagree with it.
A call's id names message, tool and arguments, and ends with its number among equal ones.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from agentsup.mailbox.choices import ALWAYS, ANY, DENY, ONCE, RUN, allows, pattern_option
from agentsup.model.hook import Allow, CallFacts, Deny
from agentsup.model.principal import Principal, PrincipalKind
from agentsup.model.question import QuestionState, Who
from agentsup.model.tool import Safety

MAX_UNANSWERED = 3
"""How often the same call is asked about in a turn while nobody answers."""


class Mode(StrEnum):
    """Permission modes that change what is asked; all others ask about what is dangerous."""

    BYPASS = "bypassPermissions"
    PLAN = "plan"
    DONT_ASK = "dontAsk"


class State(StrEnum):
    PENDING = "pending"
    GRANTED = "granted"
    DENIED = "denied"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"
    REVOKED = "revoked"
    """Granted for more than one call, and taken back since."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One question about a call of this run, and what became of it."""

    question_id: str
    call_id: str
    tool: str
    state: QuestionState
    answer: str = ""
    args: str = ""
    is_revoked: bool = False
    digest: str = ""
    """Of the call that was asked about; empty where an older version asked."""

    @property
    def outcome(self) -> State:
        if self.state is QuestionState.ANSWERED:
            if not allows(self.answer):
                return State.DENIED
            return State.REVOKED if self.is_revoked else State.GRANTED
        return {
            QuestionState.OPEN: State.PENDING,
            QuestionState.EXPIRED: State.EXPIRED,
        }.get(self.state, State.WITHDRAWN)

    @property
    def reason(self) -> str:
        """What was said with a denial."""
        return self.answer.removeprefix(DENY).lstrip(": ")

    @property
    def edited(self) -> dict[str, Any] | None:
        """The arguments a person put in place of the model's own."""
        return json.loads(self.args) if self.args else None


def grant_id(message_id: str, leave: str, pattern: str = "") -> str:
    """The identity of leave for a tool, or for command lines of a pattern, in a run; it stays the
    same however often it is asked for."""
    if not pattern:
        return f"grant-{message_id}-{leave}"
    return f"grant-{message_id}-{leave}-{hashlib.sha256(pattern.encode()).hexdigest()[:8]}"


def content_of(call_id: str) -> str:
    """What equal calls of a turn have in common."""
    return call_id.rpartition(":")[0]


def at_once(call: CallFacts) -> Allow | Deny | None:
    """What the agent's mode and the call's safety settle without looking anything up."""
    if call.permission_mode == Mode.BYPASS or call.safety is Safety.SAFE:
        return Allow()
    what = call.own_name or call.name
    if call.permission_mode == Mode.PLAN:
        return Deny(f"{what} changes something, and {call.agent_name} is in plan mode")
    return Allow() if call.safety is Safety.MODERATE else None


def decide(
    call: CallFacts, asked: Sequence[Asked], *, is_granted: bool, say: Callable[..., str]
) -> Allow | Deny | None:
    """What stands about a call that is within its agent's ceiling; None: ask.

    ``asked`` are the questions of its run, oldest first. ``is_granted``: leave for its tool stands,
    for this run or for good. ``say`` words a denial.
    """
    settled = at_once(call)
    if settled is not None:
        return settled
    # What was said about a tool that has changed since, or about another call, is not about this.
    same = [
        one
        for one in asked
        if content_of(one.call_id) == content_of(call.call_id) and _is_about(one, call)
    ]
    own = next((one for one in reversed(same) if one.call_id == call.call_id), None)
    if own is not None and own.outcome in (State.GRANTED, State.DENIED, State.EXPIRED):
        return _told(own, say)
    if is_granted:
        return Allow()
    if call.permission_mode == Mode.DONT_ASK:
        what = call.own_name or call.name
        return Deny(f"{what} is dangerous, and {call.agent_name} is not to ask about it")
    final = [one for one in same if one.outcome in (State.GRANTED, State.DENIED)]
    if final:
        return _told(final[-1], say)
    unanswered = [one for one in same if one.outcome is State.EXPIRED]
    return _told(unanswered[-1], say) if len(unanswered) >= MAX_UNANSWERED else None


def _told(one: Asked, say: Callable[..., str]) -> Allow | Deny:
    if one.outcome is State.GRANTED:
        return Allow(one.edited)
    if one.outcome is State.EXPIRED:
        return Deny(say("approval.unanswered"), "unanswered")
    if one.reason:
        return Deny(say("approval.denied_because", why=one.reason), words=one.reason)
    return Deny(say("approval.denied"))


def _is_about(one: Asked, call: CallFacts) -> bool:
    return one.tool == call.leave and one.digest in ("", call.digest)


def pending(call: CallFacts, asked: Sequence[Asked]) -> Asked | None:
    """The open question about this very call."""
    return next(
        (
            one
            for one in asked
            if (one.call_id, one.outcome) == (call.call_id, State.PENDING) and _is_about(one, call)
        ),
        None,
    )


def attempt(leave: str, asked: Sequence[Asked]) -> int:
    """The how manieth question about the tool the next one is, since one was last answered."""
    count = 1
    for one in asked:
        if one.tool != leave:
            continue
        count = 1 if one.state is QuestionState.ANSWERED else count + 1
    return count


def who_decides(asker: Principal, *, has_people: bool) -> Who:
    """Who is asked: the person at whose word the agent works, unless others are named for it.

    An agent or a run never gives leave to another one.
    """
    if asker.is_operator:
        return Who.ASKER if asker.kind is PrincipalKind.PERSON else Who.OPERATORS
    if asker.kind is not PrincipalKind.PERSON or has_people:
        return Who.OPERATORS
    return Who.ASKER


def options_for(
    asker: Principal, who: Who, *, runs_commands: bool = False, pattern: str = ""
) -> tuple[str, ...]:
    """Leave for good is an operator's to give: for command lines of a pattern, where there is one,
    and for all that a tool does, which has to be confirmed where it runs commands."""
    if who is not Who.OPERATORS and not asker.is_operator:
        return (ONCE, RUN, DENY)
    by_pattern = (pattern_option(pattern),) if pattern else ()
    return (ONCE, RUN, *by_pattern, ANY if runs_commands else ALWAYS, DENY)
