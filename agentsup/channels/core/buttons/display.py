"""Shows in chats what came of presses, questions and waiting notes.

The order of steps and what follows from a failed edit are the same on all platforms. How a message
is edited, and what stands in for buttons, is defined by each platform.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from datetime import tzinfo
from enum import StrEnum
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from agentsup.channels.core.buttons.typed_answers import AskedCard
from agentsup.channels.core.errors import (
    ChatGone,
    LowPriorityDropped,
    NotSent,
    OutcomeUnknown,
    PlatformError,
    RateLimited,
    TokenRefused,
)
from agentsup.channels.core.receiving.messages import BotServices
from agentsup.channels.core.sending import cards
from agentsup.channels.core.sending.buttons import ChatNotices
from agentsup.channels.text.long import rendered
from agentsup.kit.log import get_logger
from agentsup.model.control import CommandButton
from agentsup.store import Tx

_log = get_logger(__name__)
_EDIT_TRIES = 3
_TRY_AGAIN_S = 2.0
_WAIT_MAX_S = 60.0


class EndShown(StrEnum):
    """The result of an edit, such as one that shows how a question ended."""

    DONE = "done"
    """It is shown, or there is no chat any more to show it in."""
    LATER = "later"
    """The platform could not be reached: try again."""
    REFUSED = "refused"
    """The message is gone, or may not be changed."""


class ButtonPress(Protocol):
    """One press of a button."""

    @property
    def data(self) -> str: ...
    @property
    def press_id(self) -> str:
        """Identifies the press, also after a restart."""

    @property
    def conversation(self) -> str: ...
    @property
    def language(self) -> str: ...
    @property
    def is_shared(self) -> bool:
        """Whether other people read the conversation."""


P = TypeVar("P", bound=ButtonPress)
Piece = TypeVar("Piece")


class PressDisplay(ABC, Generic[P, Piece]):
    """Shows the results of presses, and the ends of questions and notes, in one bot's chats."""

    channel: ClassVar[str]
    command_mark: ClassVar[str] = "/"
    """The character with which commands begin."""
    edit_pause_s: ClassVar[float] = 0.0
    """The pause after the second try of an edit; each further one is longer by it."""

    def __init__(self, deps: BotServices) -> None:
        self._deps = deps
        self._notices = ChatNotices(deps.agent_id, self.channel, deps.clock, deps.entropy)

    # -- of the platform ---------------------------------------------------------------------------

    @abstractmethod
    async def answer(self, press: P, text: str = "", *, alert: bool = False) -> None:
        """Confirm the press, with a short ``text`` for the person; an ``alert`` must be noticed."""

    @abstractmethod
    async def show(
        self,
        press: P,
        text: str,
        rows: Sequence[Sequence[CommandButton]] = (),
        *,
        origin: str = "",
    ) -> None:
        """Replace the pressed message by text and buttons; ``origin`` is the buttons' command."""

    @abstractmethod
    async def take_keyboard(self, press: P) -> None:
        """Remove the buttons of the pressed message; its text stays."""

    def needs_no_end(self, conversation: str) -> bool:
        """Whether a question without options needs no edit there after a typed answer.

        This is so where the reply is shown right below the question.
        """
        return False

    @abstractmethod
    def _render(self, text: str) -> Sequence[Piece]:
        """Return the pieces as which Markdown is shown."""

    @abstractmethod
    async def _close_question(self, card: AskedCard, last: Piece, *, is_end: bool) -> EndShown:
        """Edit the question's last message to ``last``, without buttons.

        ``is_end``: the piece says how the question ended; else it is the text as it was.
        """

    @abstractmethod
    async def _close_note(self, conversation: str, platform_id: str, text: str) -> EndShown:
        """Edit a waiting note to ``text``, without its button. May be repeated."""

    def _pause_s(self, conversation: str) -> float:
        """Return for how many seconds the platform allows no edit there, or 0."""
        return 0.0

    # -- new messages ------------------------------------------------------------------------------

    async def send(self, press: P, text: str) -> None:
        """Send ``text`` as a new message, through the outbox."""
        await self._deps.database.write(self._say_tx, press, text, name=f"{self.channel}.say")

    def _say_tx(self, tx: Tx, press: P, text: str, **facts: Any) -> None:
        """Put ``text`` into the outbox; ``facts`` are further fields of the part."""
        self._notices.add_tx(tx, press.conversation, text, **facts)

    # -- edits -------------------------------------------------------------------------------------

    async def show_end(self, card: AskedCard, timezone: tzinfo | None) -> EndShown:
        """Edit the question's last message: it says how the question ended and has no buttons.

        The end is shown only if it takes as many messages as the question.
        """
        ended = await self._rendered(
            cards.ended_text(card.question, timezone=timezone, language=card.language)
        )
        shown = await self._rendered(
            cards.text_of(
                "question",
                card.body,
                timezone=timezone,
                language=card.language,
                mark=self.command_mark,
            )
        )
        is_end = len(ended) == len(shown)
        return await self._close_question(card, (ended if is_end else shown)[-1], is_end=is_end)

    async def end_note(self, conversation: str, platform_id: str, text: str) -> bool:
        """Edit a waiting note to ``text``, without its button. May be repeated.

        False, after a pause, if the platform could not be reached.
        """
        shown = await self._close_note(conversation, platform_id, text)
        if shown is EndShown.LATER:
            pause_s = min(self._pause_s(conversation), _WAIT_MAX_S)
            await self._deps.clock.sleep(max(_TRY_AGAIN_S, pause_s))
        return shown is not EndShown.LATER

    async def _rendered(self, text: str) -> Sequence[Piece]:
        return await rendered(self._render, text, agent_id=self._deps.agent_id)

    async def _edited(self, edit: Callable[[], Awaitable[object]]) -> EndShown:
        """Call ``edit``, again if its outcome is unknown: a repeated edit does no harm."""
        for attempt in range(_EDIT_TRIES):
            try:
                await edit()
            except (NotSent, OutcomeUnknown) as error:
                _log.info(f"an edit is tried again: {error}")
            except (RateLimited, LowPriorityDropped, TokenRefused) as error:
                _log.info(f"an edit has to wait: {error}")
                return EndShown.LATER
            except PlatformError as error:
                _log.info(f"an edit was refused: {error}")
                return EndShown.DONE if isinstance(error, ChatGone) else EndShown.REFUSED
            else:
                return EndShown.DONE
            await self._deps.clock.sleep(self.edit_pause_s * attempt)
        return EndShown.LATER
