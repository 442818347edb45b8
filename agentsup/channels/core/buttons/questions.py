"""Questions in a chat: answered by a press, a typed text or a reaction, and shown as ended.

The questions table decides whether an answer counts, in the same transaction that records the press
as handled. The end of a question is shown in the chat wherever it was answered: the message of a
closed question is edited until the platform accepts the edit, also after a restart. The platform's
``PressDisplay`` makes the edit.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import tzinfo
from typing import Any

from agentsup.catalogue import words
from agentsup.channels.core.buttons.display import ButtonPress, EndShown, PressDisplay
from agentsup.channels.core.buttons.typed_answers import (
    AskedCard,
    TypedText,
    meant,
    plainly,
    replied_to,
    typed_as,
)
from agentsup.channels.core.receiving.inbox import answer_taken_note
from agentsup.channels.core.receiving.messages import BotServices
from agentsup.channels.core.sending import buttons, cards
from agentsup.channels.core.sending.buttons import ChatNotices
from agentsup.mailbox.delivery import asked_topic_of, is_question_in, preview
from agentsup.mailbox.lifecycle import answer_tx, meant_by
from agentsup.mailbox.messages import answer_options, find_question, question_of
from agentsup.mailbox.questions import SEEN_SQL, Stage, Token, is_free, rendering
from agentsup.model.errors import Conflict, Forbidden, NotConfirmed, NotFound, NotSeen
from agentsup.model.principal import Principal
from agentsup.model.question import APPROVAL, Question, QuestionState
from agentsup.store import Reader, Tx

_SHOW_WITHIN_MS = 2 * 86_400_000
"""An end older than this is not shown any more."""
_AT_ONCE = 50
_STEPS = {
    Stage.WHOLE: "approval.shown_below",
    Stage.CONFIRM: "approval.confirm_how",
    Stage.TERM: "approval.term_how",
}


@dataclass(frozen=True, slots=True)
class AnswerReply:
    """The reply to a person; ``question`` is the question that was answered, if it was found."""

    text: str
    counts: bool
    """The answer was accepted."""
    question: Question | None = None
    is_step: bool = False
    """More of the question was shown, or must be shown, before this answer can be accepted."""
    stays: bool = False
    """The answer is past the deadline, but the question is still open: its buttons stay."""


class ChatQuestions:
    """The questions of one agent in its chats on one platform."""

    def __init__(
        self,
        deps: BotServices,
        display: PressDisplay[Any, Any],
        timezone: Callable[[], tzinfo | None],
    ) -> None:
        self._deps = deps
        self._channel = display.channel
        self._display = display
        self._notices = ChatNotices(deps.agent_id, display.channel, deps.clock, deps.entropy)
        self._timezone = timezone
        self._showing = asyncio.Lock()
        self._showing_end: set[str] = set()
        self.topic = asked_topic_of(deps.agent_id)
        """Touched when a question of this agent's chats is closed."""

    # -- answering ---------------------------------------------------------------------------------

    async def press(self, press: ButtonPress, principal: Principal) -> AnswerReply:
        """Answer by a press of a button with the data ``q:<question_id>:<meaning>``.

        The meaning is the index of an option or a ``Token``.
        """
        question_id, _, meaning = press.data.removeprefix(cards.QUESTION).partition(":")

        def option_of(question: Question) -> str | Token | None:
            return meant(question, meaning)

        return await self._answer(question_id, option_of, press, principal, is_pressed=True)

    @contextmanager
    def showing_end(self, data: str) -> Iterator[None]:
        """Keep ``show_ends`` from the question of that button while the caller shows its end."""
        question_id = data.removeprefix(cards.QUESTION).partition(":")[0]
        self._showing_end.add(question_id)
        try:
            yield
        finally:
            self._showing_end.discard(question_id)

    async def text(self, typed: TypedText) -> AnswerReply | None:
        """Answer by a typed text; None if the text answers no open question of this chat.

        A text is an answer if it replies to the question's message, or if it is no reply and
        ``typed_answers.plainly`` finds one open question that it can answer. A reply to another
        message is no answer: "yes" to something else must not be taken for an approval. In a
        private chat any text may answer a question that accepts free text; then ``text`` of the
        result tells the person so.
        """
        is_reply = typed.reply_to is not None

        def look(reader: Reader) -> tuple[str | None, list[AskedCard]]:
            before = buttons.handled(reader, typed.press_id)
            return before, self._open_here(reader, typed.conversation)

        before, found = await self._deps.database.read(look, name="channel.open_questions")
        if before is not None:
            return AnswerReply(before, counts=True)
        chosen = replied_to(found, typed.reply_to, typed.quoted)
        if chosen:
            if typed_as(chosen[0], typed.text, is_reply=True) is None:
                labels = " · ".join(label for label, _ in cards.offered(chosen[0].body))
                how = words(typed.language)("press.options", options=labels)
                return AnswerReply(how, counts=False, question=chosen[0].question)
        elif not is_reply:
            chosen = plainly(found, typed.text, is_private=typed.is_private)
        if not chosen:
            return None

        def option_of(question: Question) -> str | Token | None:
            card = replace(chosen[0], question=question)
            return typed_as(card, typed.text, is_reply=is_reply)

        said = await self._answer(
            chosen[0].question.question_id,
            option_of,
            typed,
            typed.principal,
            is_typed=True,
            is_plain=typed.is_private and not is_reply,
        )
        is_refused = said.question is not None and said.question.state is QuestionState.OPEN
        if is_refused and is_reply:
            return said
        # The question was just closed, or is not this person's: treat the text as any other.
        return said if said.counts or said.is_step else None

    async def reaction(
        self, root: str, message_id: str, emoji: str, principal: Principal, press_id: str
    ) -> AnswerReply | None:
        """Answer by a reaction to a question's message; None if it stands for no option.

        ``root`` is the conversation; the question may also be in one of its topics.
        """
        found = await self._deps.database.read(
            lambda reader: self._open_here(reader, root, topics=True),
            name="channel.open_questions",
        )
        reacted = [card for card in found if message_id in card.platform_ids]
        if not reacted or cards.option_of_emoji(reacted[0].question.options, emoji) is None:
            return None

        def option_of(question: Question) -> str | None:
            return cards.option_of_emoji(question.options, emoji)

        question_id, conversation = reacted[0].question.question_id, reacted[0].conversation
        given = TypedText(
            conversation=conversation, text=emoji, principal=principal, press_id=press_id
        )
        return await self._answer(question_id, option_of, given, principal)

    async def is_open_in(self, conversation: str) -> bool:
        """Whether a question is open there that has options or accepts free text."""
        found = await self._deps.database.read(
            self._open_here, conversation, name="channel.open_questions"
        )
        return any(card.question.options or is_free(card.question) for card in found)

    async def _answer(
        self,
        question_id: str,
        option_of: Callable[[Question], str | Token | None],
        given: ButtonPress | TypedText,
        principal: Principal,
        *,
        is_typed: bool = False,
        is_plain: bool = False,
        is_pressed: bool = False,
    ) -> AnswerReply:
        language, conversation, press_id = given.language, given.conversation, given.press_id
        say = words(language)

        def step(tx: Tx) -> AnswerReply:
            before = buttons.handled(tx, press_id)
            try:
                question = find_question(tx, question_id)
            except NotFound:
                return AnswerReply(say("press.unknown"), counts=False)
            if before is not None:
                return AnswerReply(before, counts=True, question=question)
            if not self._is_shown_in(tx, question, conversation):
                return AnswerReply(say("press.elsewhere"), counts=False)
            late = AnswerReply(
                cards.outcome_text(question, timezone=self._timezone(), language=language),
                counts=False,
                question=question,
            )
            if question.state is not QuestionState.OPEN:
                return late
            option = option_of(question)
            if option is None:
                return AnswerReply(say("press.no_option"), counts=False)
            if option is Token.SHOW_ALL:
                return self._show_tx(tx, question, Stage.WHOLE, given)
            address = (self._channel, conversation)
            seen = rendering.seen_in(tx, question, *address, is_pressed=is_pressed)
            if option is Token.CONFIRM:
                option, seen = answer_options.ANY, replace(seen, is_confirmed=True)
            context = self._deps.mailbox.context
            try:
                if answer_options.needs_end(option) and question.kind == APPROVAL:
                    meant_by(context, tx, question_id, option, principal, seen)
                    return self._show_tx(tx, question, Stage.TERM, given, option)
                question = answer_tx(context, tx, question_id, option, principal, seen=seen)
            except NotConfirmed:
                return self._show_tx(tx, question, Stage.CONFIRM, given)
            except NotSeen:
                key = "approval.not_sure" if seen.is_in_doubt else "approval.not_seen"
                note = say(key, id=question_id)
                return AnswerReply(note, counts=False, question=question, is_step=True)
            except Conflict as error:  # past its deadline, and nobody has closed it yet
                if error.facts.get("state") != QuestionState.OPEN:
                    return late
                when = cards.clock_time(question.deadline_at or 0, self._timezone())
                note = say("press.late_undecided", when=when)
                return AnswerReply(note, counts=False, question=question, stays=True)
            except Forbidden:
                key = f"press.of_{question.who.value}"
                return AnswerReply(say(key), counts=False, question=question)
            if is_typed and not question.options and self._display.needs_no_end(conversation):
                _mark_tx(tx, question_id, self._deps.clock.now_ms())
            answer = answer_options.answer_label(question, language)
            note = say("press.answered", answer=answer)
            # A typed answer needs no reply: its effect is seen in the chat. But a plain text was
            # not marked as an answer, so the person is told that it was taken for one.
            if is_typed:
                note = (
                    answer_taken_note(question, language)
                    if is_plain and not question.options
                    else ""
                )
            buttons.note_tx(tx, press_id, note, self._deps.clock.now_ms())
            return AnswerReply(note, counts=True, question=question)

        return await self._deps.database.write(step, name="channel.answer")

    def _show_tx(
        self,
        tx: Tx,
        question: Question,
        stage: Stage,
        given: ButtonPress | TypedText,
        option: str = "",
    ) -> AnswerReply:
        """Show more of an open question below it; a repeated press of that button adds nothing."""
        at = self._deps.clock.now_ms()
        address = (self._deps.agent_id, self._channel, given.conversation)
        rendering.more_tx(tx, question, address, stage, at=at, option=option)
        note = words(given.language)(_STEPS[stage])
        buttons.note_tx(tx, given.press_id, note, at)
        return AnswerReply(note, counts=True, question=question, is_step=True)

    def _is_shown_in(self, reader: Reader, question: Question, conversation: str) -> bool:
        return is_question_in(
            reader,
            question.message_id,
            question.question_id,
            agent_id=self._deps.agent_id,
            channel=self._channel,
            conversation=conversation,
        )

    def _open_here(
        self, reader: Reader, conversation: str, *, topics: bool = False
    ) -> list[AskedCard]:
        rows = reader.all(
            "SELECT q.*, o.conversation, o.platform_ids, o.body FROM questions AS q"  # noqa: S608 - a constant
            " JOIN outbox AS o ON o.message_id = q.message_id AND o.kind = 'question'"
            f" WHERE q.state = 'open' AND {SEEN_SQL} AND o.agent_id = ?1 AND o.channel = ?2"
            " AND (o.conversation = ?3 OR (?4 AND substr(o.conversation, 1, length(?3) + 1) = ?3 || '/'))"
            " ORDER BY o.outbox_id",
            (self._deps.agent_id, self._channel, conversation, topics),
        )
        return _cards(rows)

    # -- showing how a question ended --------------------------------------------------------------

    async def show_ends(self) -> bool:
        """Edit the messages of closed questions; False if some must be tried again later."""
        async with self._showing:
            found = await self._deps.database.read(self._closed, name="channel.closed_questions")
            is_complete = len(found) < _AT_ONCE
            for card in found:
                if card.question.question_id in self._showing_end or not await self._show_end(card):
                    is_complete = False
                else:
                    await self.is_shown(card.question)
            return is_complete

    async def is_shown(self, question: Question) -> None:
        """Record that the chat shows how this question ended."""
        at = self._deps.clock.now_ms()
        await self._deps.database.write(
            _mark_tx, question.question_id, at, name="channel.question_shown"
        )

    def _closed(self, reader: Reader) -> list[AskedCard]:
        since = self._deps.clock.now_ms() - _SHOW_WITHIN_MS
        rows = reader.all(
            "SELECT q.*, o.conversation, o.platform_ids, o.body FROM questions AS q"
            " JOIN outbox AS o ON o.message_id = q.message_id AND o.kind = 'question'"
            " WHERE q.state <> 'open' AND q.answered_at > ? AND o.agent_id = ? AND o.channel = ?"
            " AND o.state IN ('delivered', 'unknown') AND o.platform_ids <> '[]'"
            " AND NOT EXISTS (SELECT 1 FROM question_ends AS e"
            " WHERE e.question_id = q.question_id) ORDER BY q.answered_at DESC LIMIT ?",
            (since, self._deps.agent_id, self._channel, _AT_ONCE),
        )
        return _cards(rows)

    async def _show_end(self, card: AskedCard) -> bool:
        """Show the end; False if it must be tried again. A lost message needs no further try."""
        shown = await self._display.show_end(card, self._timezone())
        if shown is EndShown.REFUSED and not card.question.options:
            await self._deps.database.write(self._say_end_tx, card, name="channel.question_end")
        return shown is not EndShown.LATER

    def _say_end_tx(self, tx: Tx, card: AskedCard) -> None:
        """Tell the end in a new message, because the question's message cannot be edited."""
        question = card.question
        short = replace(question, text=f"“{preview(question.text, 120)}”")
        text = cards.ended_text(
            short, timezone=self._timezone(), language=card.language, is_plain=True
        )
        self._notices.add_tx(tx, card.conversation, text)
        _mark_tx(tx, question.question_id, self._deps.clock.now_ms())


def _cards(rows: Sequence[Any]) -> list[AskedCard]:
    found = []
    for row in rows:
        question, body = question_of(row), json.loads(row["body"])
        if body.get("question_id") == question.question_id:
            ids = tuple(str(each) for each in json.loads(row["platform_ids"]))
            found.append(AskedCard(question, row["conversation"], ids, body))
    return found


def _mark_tx(tx: Tx, question_id: str, at: int) -> None:
    tx.execute(
        "INSERT INTO question_ends (question_id, at) VALUES (?, ?) ON CONFLICT DO NOTHING",
        (question_id, at),
    )
    tx.execute("DELETE FROM question_ends WHERE at < ?", (at - 2 * _SHOW_WITHIN_MS,))
