"""The approval gate: a call is decided by rules, by an earlier answer, or by a person now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from agentsup.approvals import grants, patterns, rules, summary
from agentsup.approvals.grants import Usage
from agentsup.approvals.rules import AskedCallState
from agentsup.approvals.summary import plain_name
from agentsup.catalogue import words
from agentsup.mailbox import Mailbox
from agentsup.mailbox.messages import need_message
from agentsup.mailbox.questions import asking
from agentsup.model.errors import LeaseLost
from agentsup.model.hook import Allow, CallFacts, CallOrigin, CallSuspended, Deny, Suspend, Verdict
from agentsup.model.message import Message, MessageState
from agentsup.model.question import APPROVAL, Decision, Question, QuestionState
from agentsup.model.tool import ASK_PERSON
from agentsup.store import Database, Reader, Tx, from_row

_ASKED = (
    "SELECT q.*, g.revoked_at FROM questions AS q"
    " LEFT JOIN grants AS g ON g.question_id = q.question_id"
    " WHERE q.message_id = ? AND q.kind = 'approval' ORDER BY q.question_id"
)


@dataclass(frozen=True, slots=True)
class GateSettings:
    """The settings that may change while the daemon runs."""

    timeout_s: float = 600.0
    has_people: bool = False
    """Whether operators are named; then they decide, and not the asker."""


@dataclass(frozen=True, slots=True)
class _Known:
    """The stored facts about a call."""

    message: Message
    asked: Sequence[AskedCallState]
    is_granted: bool

    def verdict_on(self, call: CallFacts, *, is_granted: bool | None = None) -> Allow | Deny | None:
        say = words(self.message.principal.language)
        granted = self.is_granted if is_granted is None else is_granted
        return rules.decide(call, self.asked, is_granted=granted, say=say)


@dataclass(frozen=True, slots=True)
class ApprovalGate:
    """Implements ``model.hook.Approver`` by durable questions."""

    database: Database
    mailbox: Mailbox
    settings: Callable[[], GateSettings] = GateSettings
    redact: Callable[[str], str] = str
    """Removes secrets from texts for people."""

    # -- calls -------------------------------------------------------------------------------------

    async def decide(self, call: CallFacts) -> Verdict:
        """Return the verdict on a call, or the question to ask.

        The store is read only for dangerous calls and for questions, and written only if a grant
        allows a call: the writer counts it, and sees a grant that was revoked since.
        """
        if call.name == ASK_PERSON and call.origin is CallOrigin.TOOL:
            return await self.database.read(partial(self._answered, call), name="approvals.asked")
        settled = rules.at_once(call)
        if settled is not None:
            return settled
        known = await self.database.read(self._known, call, name="approvals.decide")
        without = known.verdict_on(call, is_granted=False)
        if known.is_granted and known.verdict_on(call) != without:
            is_granted = await self.database.write(self._use_tx, call, name="approvals.use")
            return known.verdict_on(call, is_granted=is_granted) or self._ask(call, known)
        return without or self._ask(call, known)

    async def wait(self, call: CallFacts, ask: Suspend) -> Allow | Deny:
        """Ask while the turn runs, and wait for the answer.

        If an earlier attempt of the turn has asked about the same call, that question is used.
        Raises ``LeaseLost``.
        """
        changed = asyncio.Event()
        unlisten = self.database.listen(f"done:{call.message_id}", changed.set)
        try:
            await self.database.write(self._ask_running_tx, call, ask, name="approvals.ask")
            while ask.kind != APPROVAL:
                changed.clear()
                answered = await self.decide(call)
                if not isinstance(answered, Suspend):
                    return answered
                await changed.wait()
            while True:
                changed.clear()
                known = await self.database.read(self._known, call, name="approvals.wait")
                if rules.pending(call, known.asked) is None:
                    return known.verdict_on(call) or Deny("the question was withdrawn", "withdrawn")
                await changed.wait()
        finally:
            unlisten()

    def _answered(self, call: CallFacts, reader: Reader) -> Verdict:
        """The state of a question that a program asks a person; its answer goes to the tool."""
        asked = _asked_by(reader, call)
        if asked is None or asked.state is QuestionState.OPEN:
            options = tuple(self.redact(str(each)) for each in call.args.get("options") or ())
            return Suspend(self.redact(str(call.args["text"])), options, kind="question")
        if asked.state is QuestionState.ANSWERED:
            return Allow({**call.args, "answer": asked.answer_text})
        why = (
            "nobody answered in time"
            if asked.state is QuestionState.EXPIRED
            else "it was withdrawn"
        )
        return Deny(f"there is no answer: {why}", "unanswered")

    def _ask(self, call: CallFacts, known: _Known) -> Suspend | Deny:
        asker, settings = known.message.principal, self.settings()
        say = words(asker.language)
        number = rules.attempt(call.permission, known.asked)
        head = "approval.ask" if number == 1 else "approval.again"
        who = rules.who_decides(asker, has_people=settings.has_people)
        name = call.own_name or call.name
        try:
            workspace = call.workspace if call.commands is not None else ""
            shown, stored = summary.shown(
                name, call.title, call.args, call.digest, self.redact, workspace
            )
        except summary.CallTooLong as error:
            return Deny(f"{name} was not made: nobody can be shown a call that long ({error})")
        commands = call.commands(call.args) if call.commands is not None else ()
        options = rules.options_for(
            asker,
            who,
            runs_commands=call.commands is not None,
            patterns=patterns.offered(commands, call.workspace),
        )
        opening = say(head, agent=call.agent_name, n=number)
        closing = [
            say("approval.by", who=plain_name(asker.label)),
            say("approval.run_means", tool=plain_name(call.name)),
        ]
        if stored.whole:
            stored = replace(stored, whole="\n".join((opening, stored.whole, *closing)))
            closing.append(say("approval.cut"))
        return Suspend(
            "\n".join((opening, shown, *closing)),
            options,
            timeout_s=settings.timeout_s,
            kind=APPROVAL,
            who=who,
            call=stored,
        )

    def _known(self, reader: Reader, call: CallFacts) -> _Known:
        message = need_message(reader, call.message_id)
        usage = self._usage(call, message)
        found = grants.active_grant(reader, usage, partial(_covers, call))
        return _Known(message, _asked(reader, call.message_id), found is not None)

    def _use_tx(self, tx: Tx, call: CallFacts) -> bool:
        usage = self._usage(call, need_message(tx, call.message_id))
        return grants.use_tx(tx, usage, call.call_id, partial(_covers, call)) is not None

    def _usage(self, call: CallFacts, message: Message) -> Usage:
        return Usage(
            call.agent_id,
            call.permission,
            call.message_id,
            message.person,
            call.workspace,
            grants.time_of(self.mailbox.context),
        )

    def _ask_running_tx(self, tx: Tx, call: CallFacts, ask: Suspend) -> None:
        message, context = need_message(tx, call.message_id), self.mailbox.context
        stopped = context.epochs.stops(message.agent_id, message.session_id, message.accepted_at)
        if message.state is not MessageState.LEASED or stopped:
            raise LeaseLost(
                f"message {message.message_id} is not at work any more; nobody is asked about it",
                message_id=message.message_id,
            )
        if ask.kind != APPROVAL and _asked_by(tx, call) is not None:
            return
        if rules.pending(call, _asked(tx, call.message_id)) is None:
            ending = CallSuspended(call.call_id, call.permission, ask).ending(b"")
            self.mailbox.questions.ask_tx(tx, message, ending)


def _asked_by(reader: Reader, call: CallFacts) -> Question | None:
    """The latest question that a program has asked a person by this call."""
    asked = asking.of_call(reader, call.message_id, call.call_id)
    return next((one for one in reversed(asked) if one.kind == "question"), None)


def _covers(call: CallFacts, pattern: str) -> bool:
    """Whether a pattern covers a call, judged by its parsed words where it runs them."""
    return call.commands is not None and patterns.covers(
        pattern, call.commands(call.args), call.workspace
    )


def _asked(reader: Reader, message_id: str) -> list[AskedCallState]:
    return [
        from_row(
            AskedCallState,
            row,
            state=QuestionState(row["state"]),
            decision=Decision(row["decision"]) if row["decision"] else None,
            answer_text=row["answer"],
            is_revoked=row["revoked_at"] is not None,
        )
        for row in reader.all(_ASKED, (message_id,))
    ]
