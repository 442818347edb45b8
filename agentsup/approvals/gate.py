"""Who says whether a call may happen: the rules, what was answered before, or a person now."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from agentsup.approvals import grants, patterns, rules, schema, summary
from agentsup.approvals.rules import Asked
from agentsup.approvals.summary import plain_name
from agentsup.catalogue import words
from agentsup.kit.clock import Clock
from agentsup.mailbox import answering, questions
from agentsup.mailbox.choices import ALWAYS, ONCE, RUN, allows, pattern_of, pattern_option
from agentsup.mailbox.mailbox import Mailbox
from agentsup.mailbox.rows import need_message, question_of
from agentsup.model.engine import Suspended
from agentsup.model.errors import BadRequest, Conflict, Forbidden, LeaseLost
from agentsup.model.hook import Allow, CallFacts, Deny, Origin, Suspend, Verdict
from agentsup.model.message import Message, State
from agentsup.model.principal import Principal, PrincipalKind
from agentsup.model.question import APPROVAL, Question, QuestionState, Seen
from agentsup.model.tool import ASK_PERSON, Tool
from agentsup.observe.redact import MASK
from agentsup.store.database import Database, Reader, Tx

_ASKED = (
    "SELECT q.*, g.revoked_at FROM questions AS q"
    " LEFT JOIN grants AS g ON g.question_id = q.question_id"
    " WHERE q.message_id = ? AND q.kind = 'approval' ORDER BY q.question_id"
)
_OWN = (
    "SELECT state, answer FROM questions WHERE message_id = ? AND call_id = ? AND kind = 'question'"
    " ORDER BY question_id DESC LIMIT 1"
)
_ALSO = (
    "SELECT * FROM questions WHERE state = 'open' AND kind = 'approval'"
    " AND agent_id = ?1 AND tool = ?2 AND (?3 = 'always' OR message_id = ?4)"
)


@dataclass(frozen=True, slots=True)
class GateSettings:
    """What may change while the daemon runs."""

    timeout_s: float = 600.0
    has_people: bool = False
    """Operators are named, so it is theirs to decide, not the asker's."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What the store knows about a call."""

    message: Message
    asked: Sequence[Asked]
    is_granted: bool


class Gate:
    """Implements ``model.hook.Approver`` over durable questions.

    It also keeps the book of leave (``mailbox.values.Approvals``): what an answer gives is written
    in the answer's own transaction.
    """

    def __init__(
        self,
        database: Database,
        clock: Clock,
        mailbox: Mailbox,
        *,
        tool_of: Callable[[str], Tool | None],
        settings: Callable[[], GateSettings] = GateSettings,
        redact: Callable[[str], str] = str,
    ) -> None:
        """``tool_of`` finds a registered tool, ``redact`` takes secrets out of what is shown."""
        self._database = database
        self._clock = clock
        self._mailbox = mailbox
        self._tool_of = tool_of
        self._settings = settings
        self._redact = redact
        mailbox.desk.approvals.append(self)

    # -- calls -------------------------------------------------------------------------------------

    async def decide(self, call: CallFacts) -> Verdict:
        """What stands, or what to ask. Reads the store only for what is dangerous."""
        if call.name == ASK_PERSON and call.origin is Origin.TOOL:
            return await self._database.read(partial(self._answered, call), name="approvals.asked")
        settled = rules.at_once(call)
        if settled is not None:
            return settled
        known = await self._database.read(lambda r: _known(r, call), name="approvals.decide")
        say = words(known.message.principal.language)
        verdict = rules.decide(call, known.asked, is_granted=known.is_granted, say=say)
        return self._ask(call, known) if verdict is None else verdict

    async def wait(self, call: CallFacts, ask: Suspend) -> Allow | Deny:
        """Ask while the turn is at work, and wait. A question that an earlier life of the turn put
        about the same call is taken up. Raises ``LeaseLost``."""
        changed = asyncio.Event()
        unlisten = self._database.listen(f"done:{call.message_id}", changed.set)
        try:
            await self._database.write(
                lambda tx: self._ask_in_place_tx(tx, call, ask), name="approvals.ask"
            )
            while ask.kind != APPROVAL:
                changed.clear()
                answered = await self.decide(call)
                if not isinstance(answered, Suspend):
                    return answered
                await changed.wait()
            while True:
                changed.clear()
                known = await self._database.read(lambda r: _known(r, call), name="approvals.wait")
                if rules.pending(call, known.asked) is None:
                    say = words(known.message.principal.language)
                    verdict = rules.decide(call, known.asked, is_granted=known.is_granted, say=say)
                    return verdict or Deny("the question was withdrawn", "withdrawn")
                await changed.wait()
        finally:
            unlisten()

    def _answered(self, call: CallFacts, reader: Reader) -> Verdict:
        """What became of a question that a program puts to a person: the answer goes to the tool."""
        row = reader.one(_OWN, (call.message_id, call.call_id))
        state = None if row is None else QuestionState(row["state"])
        if row is None or state is QuestionState.OPEN:
            options = tuple(self._redact(str(each)) for each in call.args.get("options") or ())
            return Suspend(self._redact(str(call.args["text"])), options, kind="question")
        if state is QuestionState.ANSWERED:
            return Allow({**call.args, "answer": row["answer"]})
        why = "nobody answered in time" if state is QuestionState.EXPIRED else "it was withdrawn"
        return Deny(f"there is no answer: {why}", "unanswered")

    def _ask(self, call: CallFacts, known: _Known) -> Suspend | Deny:
        asker, settings = known.message.principal, self._settings()
        say = words(asker.language)
        number = rules.attempt(call.leave, known.asked)
        head = "approval.ask" if number == 1 else "approval.again"
        who = rules.who_decides(asker, has_people=settings.has_people)
        name = call.own_name or call.name
        try:
            shown, kept = summary.shown(name, call.title, call.args, call.digest, self._redact)
        except summary.TooLong as error:
            return Deny(f"{name} was not made: nobody can be shown a call that long ({error})")
        commands = call.commands(call.args) if call.commands is not None else ()
        options = rules.options_for(
            asker,
            who,
            runs_commands=call.commands is not None,
            pattern=patterns.offered(commands),
        )
        opening = say(head, agent=call.agent_name, n=number)
        closing = [
            say("approval.by", who=plain_name(asker.label)),
            say("approval.run_means", tool=plain_name(call.name)),
        ]
        if kept.whole:
            kept = replace(kept, whole="\n".join((opening, kept.whole, *closing)))
            closing.append(say("approval.cut"))
        return Suspend(
            "\n".join((opening, shown, *closing)),
            options,
            timeout_s=settings.timeout_s,
            kind=APPROVAL,
            who=who,
            call=kept,
        )

    def _ask_in_place_tx(self, tx: Tx, call: CallFacts, ask: Suspend) -> None:
        message, desk = need_message(tx, call.message_id), self._mailbox.desk
        stopped = desk.epochs.stops(message.agent_id, message.session_id, message.accepted_at)
        if message.state is not State.LEASED or stopped:
            raise LeaseLost(
                f"message {message.message_id} is not at work any more; nobody is asked about it",
                message_id=message.message_id,
            )
        row = tx.one(_OWN, (call.message_id, call.call_id)) if ask.kind != APPROVAL else None
        if row is not None:
            return
        if rules.pending(call, _asked(tx, call.message_id)) is None:
            ending = Suspended(
                checkpoint=b"",
                text=ask.text,
                options=ask.options,
                timeout_s=ask.timeout_s,
                kind=ask.kind,
                who=ask.who,
                call_id=call.call_id,
                tool=call.leave,
                call=ask.call,
            )
            questions.ask_tx(desk, tx, message, ending)

    # -- the book ----------------------------------------------------------------------------------

    def asked_tx(self, tx: Tx, question: Question) -> Principal | None:
        """Who gave leave between the call's decision and its question, if anyone did."""
        if question.kind != APPROVAL:
            return None
        found = grants.standing(
            tx,
            question.agent_id,
            question.leave,
            question.message_id,
            lambda pattern: pattern_option(pattern) in question.options,
        )
        if found is None:
            return None
        return Principal(PrincipalKind.PERSON, found.granted_by, found.granted_by)

    def answered_tx(self, tx: Tx, question: Question, by: Principal) -> None:
        """Check changed arguments, note leave for more than this call, and settle what else it
        covers. Raises ``BadRequest`` and ``Forbidden``: the question stays open then."""
        if question.args:
            self._check_args(question, by)
        pattern = pattern_of(question.answer)
        scope = ALWAYS if pattern else question.answer
        if question.kind != APPROVAL or scope not in (RUN, ALWAYS):
            return
        grants.give_tx(tx, question, scope, by, self._clock.now_ms(), pattern)
        also = (question.agent_id, question.leave, scope, question.message_id)
        for row in tx.all(_ALSO, also):
            other = question_of(row)  # type: ignore[arg-type]  # Row is a mapping in all but name
            if pattern and pattern_option(pattern) not in other.options:
                continue
            try:
                # The grant covers it, whoever has seen this one of its calls.
                answering.answer_tx(
                    self._mailbox.desk,
                    tx,
                    other.question_id,
                    ONCE,
                    by,
                    seen=Seen(other.call.digest),
                )
            except Conflict:
                continue  # past its deadline: it ends as such

    def _check_args(self, question: Question, by: Principal) -> None:
        if question.kind != APPROVAL or not allows(question.answer):
            raise BadRequest("only a call that gets leave can get other arguments", field="args")
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
            return  # a CLI's own: the rules for it are asked when the call is made
        wrong = schema.problem(tool.parameters, args) or (tool.check and tool.check(args))
        if wrong:
            raise BadRequest(wrong, field="args", tool=tool.name)


def _known(reader: Reader, call: CallFacts) -> _Known:
    found = grants.standing(
        reader,
        call.agent_id,
        call.leave,
        call.message_id,
        lambda pattern: (
            call.commands is not None and patterns.covers(pattern, call.commands(call.args))
        ),
    )
    message = need_message(reader, call.message_id)
    return _Known(message, _asked(reader, call.message_id), found is not None)


def _asked(reader: Reader, message_id: str) -> list[Asked]:
    return [
        Asked(
            row["question_id"],
            row["call_id"],
            row["tool"],
            QuestionState(row["state"]),
            row["answer"],
            row["args"],
            row["revoked_at"] is not None,
            row["digest"],
        )
        for row in reader.all(_ASKED, (message_id,))
    ]
