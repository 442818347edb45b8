"""``/answer`` and ``/question``: answering what agents ask, and seeing all of it first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from agentsup.agents.commands import texts
from agentsup.agents.commands.dispatch import Command, is_operator
from agentsup.catalogue import Words, words
from agentsup.kit.clock import Clock
from agentsup.mailbox import answering, choices, questions, showing
from agentsup.mailbox.mailbox import Mailbox
from agentsup.mailbox.naming import chat_key
from agentsup.mailbox.notices import preview
from agentsup.mailbox.showing import Stage, Token
from agentsup.model.control import CommandContext, CommandReply
from agentsup.model.errors import BadRequest, Conflict, Forbidden, NotConfirmed, NotFound, NotSeen
from agentsup.model.ids import AgentId
from agentsup.model.message import DeliverTo, Kind, Lane, NewMessage, text_parts
from agentsup.model.question import APPROVAL, OF_AGENTS, Question, QuestionState
from agentsup.store.database import Database

SHOWN = 10
_QUOTE_CHARS = 120


@dataclass(frozen=True, slots=True)
class _Answers:
    """The handlers; one instance for the daemon."""

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
            await self.mailbox.answer(question.question_id, text, context.principal)
        option = _option(question, text, say)
        if option is Token.SHOW_ALL:
            return await self.question(context, question.question_id)
        seen = await self.database.read(
            lambda r: showing.seen_in(r, question, context.channel, context.conversation),
            name="command.seen",
        )
        if option is Token.CONFIRM:
            option, seen = choices.ANY, replace(seen, is_confirmed=True)
        try:
            await self.mailbox.answer(question.question_id, option, context.principal, seen=seen)
        except NotConfirmed:
            return await self._show(context, question, Stage.CONFIRM, "approval.confirm_how")
        except NotSeen:
            key = "approval.not_sure" if seen.is_in_doubt else "approval.not_seen"
            raise Conflict(say(key, id=question.question_id)) from None
        return CommandReply(say("answer.done", text=text))

    async def skip(self, context: CommandContext, rest: str) -> CommandReply:
        """Leave a question of an agent unanswered: its turn goes on without."""
        fits = _is_of_agents
        question = await (self._named(context, rest) if rest else self._only(context, fits))
        closed = await self.database.write(
            lambda tx: answering.skip_tx(
                self.mailbox.desk, tx, question.question_id, context.principal
            ),
            name="command.skip",
        )
        text = preview(closed.text, _QUOTE_CHARS)
        return CommandReply(words(context.language)("answer.skipped", question=text))

    async def say(self, context: CommandContext, rest: str) -> CommandReply:
        """A new message, also where a plain text would be an answer."""
        say = words(context.language)
        if not rest.strip():
            raise BadRequest(say("answer.say_text"), field="text")
        agent_id, place = context.agent_id, (context.channel, context.conversation)
        await self.mailbox.accept(
            NewMessage(
                agent_id=AgentId(agent_id),
                session_key=chat_key(*place),
                parts=text_parts(rest),
                principal=context.principal,
                kind=Kind.CHAT,
                lane=Lane.INTERACTIVE,
                deliver_to=DeliverTo(
                    "chat", agent_id=agent_id, channel=place[0], conversation=place[1]
                ),
                source=f"say:{agent_id}" if context.key else "",
                external_id=context.key,
            )
        )
        return CommandReply(say("answer.said"))

    async def question(self, context: CommandContext, rest: str) -> CommandReply:
        """Show all of an open question, in a part of its own with its answers below."""
        question = await (self._named(context, rest) if rest else self._only(context))
        if question.state is not QuestionState.OPEN:
            return CommandReply(question.text)
        return await self._show(context, question, Stage.WHOLE, "approval.shown_below")

    async def _show(
        self, context: CommandContext, question: Question, stage: Stage, told: str
    ) -> CommandReply:
        place = (context.agent_id, context.channel, context.conversation)
        at = self.clock.now_ms()
        await self.database.write(
            lambda tx: showing.more_tx(tx, question, place, stage, at=at), name="command.question"
        )
        return CommandReply(words(context.language)(told))

    async def _only(
        self, context: CommandContext, fits: Callable[[Question], bool] = lambda each: True
    ) -> Question:
        """The one question that is open; of several, which is meant must be said."""
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
        """The question meant by its id, open or not: a late answer is told so."""
        question = await self.mailbox.question(question_id)
        say = words(context.language)
        # Work that was handed on asks in the chat it comes from, whoever does it.
        if await self.database.read(
            lambda r: questions.was_asked_in(
                r, question_id, context.agent_id, context.channel, context.conversation
            ),
            name="command.asked",
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
    """The open questions this person may answer from here: those shown in the conversation, and to
    an operator, where none is, all of this agent."""
    here = await database.read(
        lambda r: questions.asked_in(r, context.agent_id, context.channel, context.conversation),
        name="command.asked",
    )
    if here or not is_operator(context):
        return here
    return [q for q in await mailbox.questions() if q.agent_id == context.agent_id]


def answer_commands(mailbox: Mailbox, database: Database, clock: Clock) -> tuple[Command, ...]:
    """The commands about questions."""
    run = _Answers(mailbox, database, clock)
    return (
        Command("answer", "[ID] TEXT", "answer an open question", run.answer),
        Command("skip", "[ID]", "leave a question unanswered", run.skip),
        Command(
            "say", "TEXT", "send a text as a new message, also while a question is open", run.say
        ),
        Command(
            "question", "[ID]", "show all of an open question, with the whole call", run.question
        ),
    )


def _is_of_agents(question: Question) -> bool:
    return question.kind in OF_AGENTS


def _option(question: Question, text: str, say: Words) -> str | Token:
    """The option meant by its number or its text in any case, or more of the question. Raises
    ``BadRequest`` otherwise."""
    if question.kind == APPROVAL and text in {*Token}:
        return Token(text)
    found = choices.meant(question, text)
    if found is not None:
        return found
    if text.isdecimal() and 1 <= int(text) <= len(question.options):
        return question.options[int(text) - 1]
    for option in question.options:
        if option.casefold() == text.casefold():
            return option
    options = ", ".join(f"{i} {o}" for i, o in enumerate(question.options, start=1))
    raise BadRequest(say("answer.options", options=options), field="answer")
