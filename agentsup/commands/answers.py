"""``/answer``, ``/skip``, ``/say``, ``/question`` and ``/approvals``: agents' questions, and the grants
for their calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from agentsup.approvals import Grant, Grants
from agentsup.catalogue import LocalizedTexts, words
from agentsup.commands import texts
from agentsup.commands.dispatch import Command, chat_of, is_operator, key_of
from agentsup.kit.clock import Clock
from agentsup.mailbox import Mailbox
from agentsup.mailbox.delivery import preview
from agentsup.mailbox.lifecycle import answering
from agentsup.mailbox.messages import answer_options
from agentsup.mailbox.questions import Stage, Token, rendering
from agentsup.model.agent import MAIN
from agentsup.model.control import CommandButton, CommandContext, CommandReply
from agentsup.model.errors import BadRequest, Conflict, Forbidden, NotConfirmed, NotFound, NotSeen
from agentsup.model.ids import AgentId
from agentsup.model.message import LaneName, MessageKind, NewMessage, text_parts
from agentsup.model.question import APPROVAL, OF_AGENTS, Question, QuestionState, SeenCall
from agentsup.store import Database, clock_time

SHOWN = 10
_QUOTE_CHARS = 120


@dataclass(frozen=True, slots=True)
class _Answers:
    """The handlers of these commands; one instance for the daemon."""

    mailbox: Mailbox
    database: Database
    clock: Clock

    async def answer(self, context: CommandContext, rest: str) -> CommandReply:
        say = words(context.language)
        if not rest:
            raise BadRequest(say("answer.say"), field="text")
        head, _, tail = rest.partition(" ")
        if head.startswith("q_"):
            question, text = await self._named(context, head), tail.strip()
        else:
            question, text = await self._only(context), rest
        if question.state is not QuestionState.OPEN:
            await self.mailbox.questions.answer(question.question_id, text, context.principal)
        option = _option(question, text, say)
        if option is Token.SHOW_ALL:
            return await self.question(context, question.question_id)
        seen = await self.database.read(
            rendering.seen_in, question, context.channel, context.conversation, name="command.seen"
        )
        if option is Token.CONFIRM:
            option, seen = answer_options.ANY, replace(seen, is_confirmed=True)
        try:
            if question.kind == APPROVAL and answer_options.needs_end(option):
                await self._check(context, question, option, seen)
                return await self._show(context, question, Stage.TERM, "approval.term_how", option)
            await self.mailbox.questions.answer(
                question.question_id, option, context.principal, seen=seen
            )
        except NotConfirmed:
            return await self._show(context, question, Stage.CONFIRM, "approval.confirm_how")
        except NotSeen:
            key = "approval.not_sure" if seen.is_in_doubt else "approval.not_seen"
            raise Conflict(say(key, id=question.question_id)) from None
        return CommandReply(say("answer.done", text=text))

    async def skip(self, context: CommandContext, rest: str) -> CommandReply:
        """Leave a question of an agent unanswered: its turn continues without an answer."""
        if rest:
            question = await self._named(context, rest)
        else:
            question = await self._only(context, lambda each: each.kind in OF_AGENTS)
        closed = await self.database.write(
            lambda tx: answering.skip_tx(
                self.mailbox.context, tx, question.question_id, context.principal
            ),
            name="command.skip",
        )
        text = preview(closed.text, _QUOTE_CHARS)
        return CommandReply(words(context.language)("answer.skipped", question=text))

    async def say(self, context: CommandContext, rest: str) -> CommandReply:
        """Send a new message, also if a plain text would be taken as an answer."""
        say = words(context.language)
        if not rest.strip():
            raise BadRequest(say("answer.say_text"), field="text")
        await self.mailbox.queue.accept(
            NewMessage(
                agent_id=AgentId(context.agent_id),
                session_key=key_of(context),
                parts=text_parts(rest),
                principal=context.principal,
                kind=MessageKind.CHAT,
                lane=LaneName.INTERACTIVE,
                deliver_to=chat_of(context),
                source=f"say:{context.agent_id}" if context.key else "",
                external_id=context.key,
            )
        )
        return CommandReply(say("answer.said"))

    async def question(self, context: CommandContext, rest: str) -> CommandReply:
        """Show all of an open question in a part of its own, with the answers below."""
        question = await (self._named(context, rest) if rest else self._only(context))
        if question.state is not QuestionState.OPEN:
            return CommandReply(question.text)
        return await self._show(context, question, Stage.WHOLE, "approval.shown_below")

    async def _check(
        self, context: CommandContext, question: Question, option: str, seen: SeenCall
    ) -> None:
        await self.database.read(
            lambda reader: answering.meant_by(
                self.mailbox.context,
                reader,
                question.question_id,
                option,
                context.principal,
                seen,
            ),
            name="command.meant",
        )

    async def _show(
        self,
        context: CommandContext,
        question: Question,
        stage: Stage,
        text: str,
        option: str = "",
    ) -> CommandReply:
        at = self.clock.now_ms()
        await self.database.write(
            lambda tx: rendering.more_tx(
                tx, question, context.address, stage, at=at, option=option
            ),
            name="command.question",
        )
        return CommandReply(words(context.language)(text))

    async def _only(
        self, context: CommandContext, fits: Callable[[Question], bool] = lambda each: True
    ) -> Question:
        """The only open question. Raises ``NotFound`` for none and ``Conflict`` for several."""
        say = words(context.language)
        found = await open_here(self.mailbox, self.database, context)
        asked = [each for each in found if fits(each)]
        if not asked:
            raise NotFound(say("answer.none"))
        if len(asked) > 1:
            shown = "\n".join(f"   {texts.question(each)}" for each in asked[:SHOWN])
            raise Conflict(say("answer.which", questions=shown))
        return asked[0]

    async def _named(self, context: CommandContext, question_id: str) -> Question:
        """The question with that id, open or not: the caller reports a late answer as late."""
        question = await self.mailbox.questions.get(question_id)
        say = words(context.language)
        # Delegated work asks in the chat from which it came, whichever agent does it.
        if await self.database.read(
            lambda r: rendering.was_asked_in(r, question_id, *context.address), name="command.asked"
        ):
            return question
        if question.agent_id != context.agent_id:
            raise NotFound(say("answer.not_ours", id=question_id), question_id=question_id)
        if not is_operator(context):
            raise Forbidden(say("answer.elsewhere", id=question_id), question_id=question_id)
        return question


async def open_here(
    mailbox: Mailbox, database: Database, context: CommandContext
) -> list[Question]:
    """The open questions that this person may answer here: those shown in the conversation. If
    there are none, an operator gets all of this agent."""
    here = await database.read(
        lambda r: rendering.asked_in(r, *context.address), name="command.asked"
    )
    if here or not is_operator(context):
        return here
    return [q for q in await mailbox.questions.list() if q.agent_id == context.agent_id]


def answer_commands(mailbox: Mailbox, database: Database, clock: Clock) -> tuple[Command, ...]:
    """The commands about questions."""
    run = _Answers(mailbox, database, clock)
    return (
        Command("answer", "[ID] TEXT", "answer an open question", run.answer),
        Command("skip", "[ID]", "go on without an answer to a question", run.skip),
        Command(
            "say", "TEXT", "send a text as a new message, also while a question is open", run.say
        ),
        Command(
            "question", "[ID]", "show all of an open question, with the whole call", run.question
        ),
    )


def option_named(question: Question, text: str) -> str | None:
    """The option named by its number or its text (in any case); None for any other text."""
    found = answer_options.meant(question, text)
    if found is None and text.isdecimal() and 1 <= int(text) <= len(question.options):
        return question.options[int(text) - 1]
    if found is None:
        found = next((o for o in question.options if o.casefold() == text.casefold()), None)
    return found


def _option(question: Question, text: str, say: LocalizedTexts) -> str | Token:
    """The option named by its number or its text (in any case), or a token that asks for more of
    the question. Raises ``BadRequest`` otherwise."""
    if question.kind == APPROVAL and text in {*Token}:
        return Token(text)
    found = option_named(question, text)
    if found is not None:
        return found
    options = ", ".join(f"{i} {o}" for i, o in enumerate(question.options, start=1))
    raise BadRequest(say("answer.options", options=options), field="answer")


def approval_commands(grants: Grants, name_of: Callable[[str], str]) -> tuple[Command, ...]:
    """The command; in the chat of main it shows all agents. ``name_of`` gives the name of an id."""

    def line(grant: Grant, say: LocalizedTexts) -> str:
        what = grant.tool
        if grant.pattern:
            where = grant.workspace or say("approval.anywhere")
            what = say("approval.what_pattern", tool=what, pattern=grant.pattern, where=where)
        if grant.until_at is not None:
            end = say("approval.end_until", when=clock_time(grant.until_at))
        else:
            end = say(f"approval.end_{grant.scope}", message=grant.message_id)
        used = say("approval.unused")
        if grant.last_used_at is not None:
            used = say.count("approval.used", grant.uses, when=clock_time(grant.last_used_at))
        return say(
            "approval.line",
            agent=name_of(grant.agent_id),
            what=what,
            end=end,
            used=used,
            who=grant.granted_by,
            id=grant.grant_id,
        )

    def scope(context: CommandContext) -> str | None:
        return None if context.agent_name == MAIN else context.agent_id

    async def run(context: CommandContext, rest: str) -> CommandReply:
        say = words(context.language)
        verb, _, given = rest.partition(" ")
        if verb.casefold() == "revoke" and given.strip():
            if not is_operator(context):
                role = context.principal.role.name.lower()
                raise Forbidden(say("help.operators", name="approvals revoke", role=role))
            taken = await grants.revoke(given.strip(), context.principal, scope(context))
            text = say(
                "approval.revoked",
                id=taken.grant_id,
                tool=taken.tool,
                agent=name_of(taken.agent_id),
            )
            return CommandReply(text)
        if rest:
            raise BadRequest(say("approval.say"), field="approvals")
        found = await grants.all(scope(context))
        if not found:
            return CommandReply(say("approval.none"))
        lines = [say("approval.head"), *(f"• {line(one, say)}" for one in found)]
        if not is_operator(context):
            return CommandReply("\n".join(lines))
        acts = tuple(
            (
                CommandButton(
                    f"✖ {name_of(one.agent_id)}: {one.pattern or one.tool}",
                    f"/approvals revoke {one.grant_id}",
                    once=True,
                ),
            )
            for one in found[:10]
        )
        return CommandReply("\n".join((*lines, say("approval.how"))), buttons=acts)

    about = "which calls need not be asked about; revoke a grant"
    return (Command("approvals", "[revoke ID]", about, run),)
