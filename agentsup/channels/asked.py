"""Questions in a chat: answered by a press, a typed text or a reaction, and shown as ended.

The questions table decides; this only asks it, in one transaction with the note that the press was
handled. How a question ended is shown wherever it ended: each closed one is edited until the
platform has taken it, also after a restart. What an edit is on a platform, its `Shows` knows.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import tzinfo
from enum import StrEnum
from typing import Any, Protocol

from agentsup.catalogue import load
from agentsup.channels import buttons, cards
from agentsup.channels.inbox import taken
from agentsup.channels.typed import AskedCard, meant, plainly, replied_to, typed_as
from agentsup.kit.clock import Clock
from agentsup.mailbox import choices, outbox, showing
from agentsup.mailbox.mailbox import Mailbox
from agentsup.mailbox.notices import asked_topic_of, preview
from agentsup.mailbox.plain_answer import is_free
from agentsup.mailbox.rows import find_question, question_of
from agentsup.mailbox.showing import SEEN_SQL, Stage, Token
from agentsup.model.errors import Conflict, Forbidden, NotConfirmed, NotFound, NotSeen
from agentsup.model.principal import Principal
from agentsup.model.question import Question, QuestionState
from agentsup.store.database import Database, Reader, Tx

__all__ = ["Asked", "AskedCard", "Said", "Shown", "Shows"]

_SHOW_WITHIN_MS = 2 * 86_400_000
"""An end older than this is not shown any more."""
_AT_ONCE = 50


@dataclass(frozen=True, slots=True)
class Said:
    """What to tell the person; ``question`` is the one concerned, where there is one."""

    text: str
    counts: bool
    """The answer was taken."""
    question: Question | None = None
    is_step: bool = False
    """More of the question is shown, or has to be, before it can be answered so."""
    stays: bool = False
    """It is late, and may yet turn out to be in time: its buttons stay."""


class Shown(StrEnum):
    """What became of showing how a question ended."""

    DONE = "done"
    LATER = "later"
    """The platform could not be reached: try again."""
    REFUSED = "refused"
    """The message is gone, or may not be changed."""


class Shows(Protocol):
    """What a platform does for questions."""

    async def show_end(self, card: AskedCard, timezone: tzinfo | None) -> Shown:
        """Let the question's last message say how it ended, and offer nothing any more."""

    def needs_no_end(self, conversation: str) -> bool:
        """Whether a typed answer to a question without options stands right below it there."""


class Asked:
    """The questions of one agent in its chats on one platform."""

    def __init__(
        self,
        *,
        agent_id: str,
        database: Database,
        mailbox: Mailbox,
        clock: Clock,
        channel: str,
        shows: Shows,
        timezone: Callable[[], tzinfo | None],
    ) -> None:
        self._agent_id = agent_id
        self._database = database
        self._mailbox = mailbox
        self._clock = clock
        self._channel = channel
        self._shows = shows
        self._timezone = timezone
        self._showing = asyncio.Lock()
        self._in_hand: set[str] = set()
        self.topic = asked_topic_of(agent_id)
        """Touched when a question of this agent's chats is closed."""

    # -- answering ---------------------------------------------------------------------------------

    async def press(
        self, data: str, conversation: str, principal: Principal, press_id: str, language: str
    ) -> Said:
        """A press of an option's button: ``q:<question_id>:<what it means>``."""
        question_id, _, meaning = data.removeprefix(cards.QUESTION).partition(":")

        def option_of(question: Question) -> str | Token | None:
            return meant(question, meaning)

        return await self._answer(
            question_id, option_of, conversation, principal, press_id, language, is_pressed=True
        )

    @contextmanager
    def in_hand(self, data: str) -> Iterator[None]:
        """While whoever pressed that button shows by itself how the question ended."""
        question_id = data.removeprefix(cards.QUESTION).partition(":")[0]
        self._in_hand.add(question_id)
        try:
            yield
        finally:
            self._in_hand.discard(question_id)

    async def text(
        self,
        conversation: str,
        text: str,
        reply_to: str | None,
        principal: Principal,
        press_id: str,
        language: str,
        *,
        quoted: str = "",
        is_private: bool = False,
    ) -> Said | None:
        """A typed text: None if it is no answer to an open question of this chat.

        It is one where it replies to the question's message, or where it replies to nothing and is
        an option of the only question that is open here: a reply names what it is about, and "yes"
        to something else must not be taken for leave. ``quoted`` is what it replies to says. Where
        the chat ``is_private``, any words are the answer of the only question that takes any; then
        ``text`` of what is returned tells the person so.
        """

        def look(reader: Reader) -> tuple[str | None, list[AskedCard]]:
            return buttons.handled(reader, press_id), self._open_here(reader, conversation)

        before, found = await self._database.read(look, name="channel.open_questions")
        if before is not None:
            return Said(before, counts=True)
        chosen = replied_to(found, reply_to, quoted)
        if chosen:
            if typed_as(chosen[0], text, is_reply=True) is None:
                labels = " · ".join(label for label, _ in cards.offered(chosen[0].body))
                words = load().text("press.options", language, options=labels)
                return Said(words, counts=False, question=chosen[0].question)
        elif reply_to is None:
            chosen = plainly(found, text, is_private=is_private)
        if not chosen:
            return None

        def option_of(question: Question) -> str | Token | None:
            card = replace(chosen[0], question=question)
            return typed_as(card, text, is_reply=reply_to is not None)

        said = await self._answer(
            chosen[0].question.question_id,
            option_of,
            conversation,
            principal,
            press_id,
            language,
            is_typed=True,
            is_plain=is_private and reply_to is None,
        )
        is_refused = said.question is not None and said.question.state is QuestionState.OPEN
        if is_refused and reply_to is not None:
            return said
        # Closed in this very moment, or not this person's: then it is a text like any other.
        return said if said.counts or said.is_step else None

    async def reaction(
        self, root: str, message_id: str, emoji: str, principal: Principal, press_id: str
    ) -> Said | None:
        """A reaction under a question's message, where it clearly means one of the options.

        ``root`` is the conversation, or the one in whose topics it may be as well.
        """
        found = await self._database.read(
            lambda reader: self._open_here(reader, root, topics=True),
            name="channel.open_questions",
        )
        reacted = [card for card in found if message_id in card.platform_ids]
        if not reacted or cards.option_of_emoji(reacted[0].question.options, emoji) is None:
            return None

        def option_of(question: Question) -> str | None:
            return cards.option_of_emoji(question.options, emoji)

        question_id, place = reacted[0].question.question_id, reacted[0].conversation
        return await self._answer(question_id, option_of, place, principal, press_id, "")

    async def is_open_in(self, conversation: str) -> bool:
        """Whether a question is open there that a number might answer."""
        found = await self._database.read(
            lambda reader: self._open_here(reader, conversation), name="channel.open_questions"
        )
        return any(card.question.options or is_free(card.question) for card in found)

    async def _answer(
        self,
        question_id: str,
        option_of: Callable[[Question], str | Token | None],
        conversation: str,
        principal: Principal,
        press_id: str,
        language: str,
        *,
        is_typed: bool = False,
        is_plain: bool = False,
        is_pressed: bool = False,
    ) -> Said:
        words = load()

        def step(tx: Tx) -> Said:
            before = buttons.handled(tx, press_id)
            try:
                question = find_question(tx, question_id)
            except NotFound:
                return Said(words.text("press.unknown", language), counts=False)
            if before is not None:
                return Said(before, counts=True, question=question)
            if not self._is_shown_in(tx, question, conversation):
                return Said(words.text("press.elsewhere", language), counts=False)
            late = Said(
                cards.outcome_text(question, timezone=self._timezone(), language=language),
                counts=False,
                question=question,
            )
            if question.state is not QuestionState.OPEN:
                return late
            option = option_of(question)
            if option is None:
                return Said(words.text("press.no_option", language), counts=False)
            if option is Token.SHOW_ALL:
                return self._show_tx(tx, question, conversation, Stage.WHOLE, press_id, language)
            place = (self._channel, conversation)
            seen = showing.seen_in(tx, question, *place, is_pressed=is_pressed)
            if option is Token.CONFIRM:
                option, seen = choices.ANY, replace(seen, is_confirmed=True)
            try:
                question = self._mailbox.answer_tx(tx, question_id, option, principal, seen)
            except NotConfirmed:
                return self._show_tx(tx, question, conversation, Stage.CONFIRM, press_id, language)
            except NotSeen:
                key = "approval.not_sure" if seen.is_in_doubt else "approval.not_seen"
                told = words.text(key, language, id=question_id)
                return Said(told, counts=False, question=question, is_step=True)
            except Conflict as error:  # past its deadline, and nobody has closed it yet
                if error.facts.get("state") != QuestionState.OPEN:
                    return late
                when = cards.clock_time(question.deadline_at or 0, self._timezone())
                told = words.text("press.late_undecided", language, when=when)
                return Said(told, counts=False, question=question, stays=True)
            except Forbidden:
                key = f"press.of_{question.who.value}"
                return Said(words.text(key, language), counts=False, question=question)
            if is_typed and not question.options and self._shows.needs_no_end(conversation):
                _mark_tx(tx, question_id, self._clock.now_ms())
            answer = choices.answer_label(question, language)
            told = words.text("press.answered", language, answer=answer)
            if is_typed:  # what follows from it stands in the chat, unless nobody said it was one
                told = taken(question, language) if is_plain and not question.options else ""
            buttons.note_tx(tx, press_id, told, self._clock.now_ms())
            return Said(told, counts=True, question=question)

        return await self._database.write(step, name="channel.answer")

    def _show_tx(
        self,
        tx: Tx,
        question: Question,
        conversation: str,
        stage: Stage,
        press_id: str,
        language: str,
    ) -> Said:
        """Show more of an open question below; a press of the same button again shows no more."""
        at, place = self._clock.now_ms(), (self._agent_id, self._channel, conversation)
        showing.more_tx(tx, question, place, stage, at=at)
        is_all = stage is Stage.WHOLE
        told = load().text("approval.shown_below" if is_all else "approval.confirm_how", language)
        buttons.note_tx(tx, press_id, told, at)
        return Said(told, counts=True, question=question, is_step=True)

    def _is_shown_in(self, reader: Reader, question: Question, conversation: str) -> bool:
        return any(
            json.loads(row["body"]).get("question_id") == question.question_id
            for row in reader.all(
                "SELECT body FROM outbox WHERE message_id = ? AND kind = 'question'"
                " AND agent_id = ? AND channel = ? AND conversation = ?",
                (question.message_id, self._agent_id, self._channel, conversation),
            )
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
            (self._agent_id, self._channel, conversation, topics),
        )
        return _cards(rows)

    # -- showing how it ended ----------------------------------------------------------------------

    async def show_ends(self) -> bool:
        """Edit the messages of questions that are closed; False if some must be tried again."""
        async with self._showing:
            found = await self._database.read(self._closed, name="channel.closed_questions")
            is_complete = len(found) < _AT_ONCE
            for card in found:
                if card.question.question_id in self._in_hand or not await self._show_end(card):
                    is_complete = False
                else:
                    await self.is_shown(card.question)
            return is_complete

    async def is_shown(self, question: Question) -> None:
        """Remember that the chat shows how this question ended."""
        at = self._clock.now_ms()
        await self._database.write(
            lambda tx: _mark_tx(tx, question.question_id, at), name="channel.question_shown"
        )

    def _closed(self, reader: Reader) -> list[AskedCard]:
        since = self._clock.now_ms() - _SHOW_WITHIN_MS
        rows = reader.all(
            "SELECT q.*, o.conversation, o.platform_ids, o.body FROM questions AS q"
            " JOIN outbox AS o ON o.message_id = q.message_id AND o.kind = 'question'"
            " WHERE q.state <> 'open' AND q.answered_at > ? AND o.agent_id = ? AND o.channel = ?"
            " AND o.state IN ('delivered', 'unknown') AND o.platform_ids <> '[]'"
            " AND NOT EXISTS (SELECT 1 FROM question_ends AS e"
            " WHERE e.question_id = q.question_id) ORDER BY q.answered_at DESC LIMIT ?",
            (since, self._agent_id, self._channel, _AT_ONCE),
        )
        return _cards(rows)

    async def _show_end(self, card: AskedCard) -> bool:
        """Whether this is settled: shown, or never to be shown (the message is gone)."""
        shown = await self._shows.show_end(card, self._timezone())
        if shown is Shown.REFUSED and not card.question.options:
            await self._database.write(
                lambda tx: self._say_end_tx(tx, card), name="channel.question_end"
            )
        return shown is not Shown.LATER

    def _say_end_tx(self, tx: Tx, card: AskedCard) -> None:
        """In a message of its own, where the platform lets the question's not be edited."""
        question = card.question
        short = replace(question, text=f"“{preview(question.text, 120)}”")
        outbox.add_tx(
            tx,
            agent_id=self._agent_id,
            channel=self._channel,
            conversation=card.conversation,
            kind="notice",
            body={
                "text": cards.ended_text(
                    short, timezone=self._timezone(), language=card.language, is_plain=True
                ),
                "plain": True,
            },
            at=self._clock.now_ms(),
        )
        _mark_tx(tx, question.question_id, self._clock.now_ms())


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
