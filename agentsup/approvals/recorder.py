"""Records what people decide about calls: changed arguments are checked against the tool's JSON
Schema, grants are stored."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, time, timedelta, tzinfo
from typing import Any

from agentsup.approvals import grants
from agentsup.approvals.grants import GrantTerms, Usage
from agentsup.mailbox.lifecycle import answering
from agentsup.mailbox.messages import (
    ALWAYS,
    ONCE,
    RUN,
    MailboxContext,
    need_message,
    pattern_end,
    pattern_option,
)
from agentsup.mailbox.questions import asking
from agentsup.model.errors import BadRequest, Conflict, Forbidden
from agentsup.model.principal import Principal, PrincipalKind
from agentsup.model.question import APPROVAL, Decision, GrantEnd, Question, SeenCall
from agentsup.model.tool import Tool
from agentsup.observe import MASK
from agentsup.store import Tx


def workspace_of(question: Question) -> str:
    """The workspace in which the waiting call runs its commands; empty if an older version
    asked."""
    document = json.loads(question.call.document) if question.call.document else {}
    return str(document.get("workspace", ""))


def until(end: GrantEnd | None, now: int, zone: tzinfo) -> int | None:
    """When a grant ends by itself (ms), given ``now``; None: with its run, or when revoked."""
    if end is GrantEnd.DAYS_30:
        return now + 30 * 86_400_000
    if end is not GrantEnd.TODAY:
        return None
    today = datetime.fromtimestamp(now / 1000, zone).date()
    return round(datetime.combine(today + timedelta(days=1), time(), zone).timestamp() * 1000)


def _is_within(tx: Tx, other: Question, terms: GrantTerms) -> bool:
    return (
        pattern_option(terms.pattern) in other.options
        and workspace_of(other) == terms.workspace
        and need_message(tx, other.message_id).person == terms.person
    )


class DecisionRecorder:
    """Implements ``mailbox.messages.values.QuestionObserver``: the grant of an answer is written in
    the answer's own transaction."""

    def __init__(
        self,
        tool_of: Callable[[str], Tool | None],
        zone_of: Callable[[str], tzinfo] = lambda agent_id: UTC,
    ) -> None:
        """``tool_of`` finds a registered tool by its name, ``zone_of`` the time zone of an agent by
        its id."""
        self._tool_of = tool_of
        self._zone_of = zone_of

    def asked_tx(self, ctx: MailboxContext, tx: Tx, question: Question) -> Principal | None:
        """Return who granted it between the call's decision and its question, or None."""
        if question.kind != APPROVAL:
            return None
        found = grants.active_grant(
            tx,
            Usage(
                question.agent_id,
                question.permission,
                question.message_id,
                need_message(tx, question.message_id).person,
                workspace_of(question),
                grants.time_of(ctx),
            ),
            lambda pattern: pattern_option(pattern) in question.options,
        )
        if found is None:
            return None
        return Principal(PrincipalKind.PERSON, found.granted_by, found.granted_by)

    def answered_tx(self, ctx: MailboxContext, tx: Tx, question: Question, by: Principal) -> None:
        """Check changed arguments, and record a grant if the answer is for more than this call.

        Other open questions that the grant covers are answered. Raises ``BadRequest`` and
        ``Forbidden``; the question stays open then.
        """
        if question.args:
            self._check_args(question, by)
        terms = self._terms(ctx, tx, question)
        if terms is None:
            return
        grants.grant_tx(tx, question, terms, by, ctx.clock.now_ms())
        run = "" if terms.scope == ALWAYS else question.message_id
        for other in asking.open_approvals(tx, question.agent_id, question.permission, run):
            if terms.pattern and not _is_within(tx, other, terms):
                continue
            try:
                # The grant covers the call, even if nobody was shown it.
                answering.answer_tx(
                    ctx,
                    tx,
                    other.question_id,
                    ONCE,
                    by,
                    seen=SeenCall(other.call.digest),
                )
            except Conflict:
                continue  # past its deadline: it expires

    def _terms(self, ctx: MailboxContext, tx: Tx, question: Question) -> GrantTerms | None:
        """The grant that the answer gives beyond this call, or None."""
        if question.decision is Decision.RUN:
            return GrantTerms(RUN)
        if question.decision is Decision.ALWAYS:
            return GrantTerms(ALWAYS)
        if question.decision is not Decision.PATTERN:
            return None
        pattern, end = pattern_end(question.answer_text)
        return GrantTerms(
            RUN if end is GrantEnd.RUN else ALWAYS,
            pattern,
            workspace_of(question),
            need_message(tx, question.message_id).person,
            until(end, grants.time_of(ctx), self._zone_of(question.agent_id)),
        )

    def _check_args(self, question: Question, by: Principal) -> None:
        if question.decision is None or not question.decision.allows:
            raise BadRequest("only an approved call can get other arguments", field="args")
        if not by.is_operator:
            raise Forbidden("only an operator may change what a call does", field="args")
        try:
            args = json.loads(question.args)
        except ValueError:
            args = None
        if not isinstance(args, dict):
            raise BadRequest("args must be a JSON object", field="args")
        if MASK in question.args:
            raise BadRequest(
                f"args hold {MASK} in place of a secret; write what is meant, or leave the call "
                "as it is",
                field="args",
            )
        tool = self._tool_of(question.tool)
        if tool is None:
            return  # a tool of the engine's program: its rules are checked when the call is made
        wrong = problem(tool.schema, args) or (tool.check and tool.check(args))
        if wrong:
            raise BadRequest(wrong, field="args", tool=tool.name)


_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def problem(schema: Mapping[str, Any], value: Any, at: str = "args") -> str | None:
    """The first thing wrong with ``value`` by a tool's JSON Schema, or None.

    Types, required and unknown members, enumerations and items are checked; a tool checks the rest
    itself.
    """
    wanted = schema.get("type")
    if wanted is not None:
        names = wanted if isinstance(wanted, list) else [wanted]
        if not any(_is(value, str(name)) for name in names):
            return f"{at} must be of type {' or '.join(map(str, names))}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{at} must be one of {', '.join(map(str, schema['enum']))}"
    if isinstance(value, dict):
        return _members(schema, value, at)
    if isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        found = (problem(schema["items"], one, f"{at}[{i}]") for i, one in enumerate(value))
        return next((each for each in found if each), None)
    return None


def _members(schema: Mapping[str, Any], value: Mapping[str, Any], at: str) -> str | None:
    known = schema.get("properties") or {}
    for name in schema.get("required") or ():
        if name not in value:
            return f"{at}.{name} is missing"
    for name, each in value.items():
        if name in known:
            found = problem(known[name], each, f"{at}.{name}")
            if found:
                return found
        elif schema.get("additionalProperties") is False:
            return f"{at}.{name} is not an argument; there are {', '.join(known) or 'none'}"
    return None


def _is(value: Any, name: str) -> bool:
    if isinstance(value, bool) and name in ("integer", "number"):
        return False
    return isinstance(value, _TYPES.get(name, (object,)))
