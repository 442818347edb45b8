"""Streams: the answers of one bot while they are written, and signs such as typing.

Each running turn of the agent in a chat gets a task of its own, so a slow or broken chat delays no
other. The whole answer does not depend on its stream: it is delivered through the outbox, and the
delivery calls ``takeover`` for the message in which the answer was streamed, if there is one
(P1, P3). How a stream is shown, and what is stored of it, is defined by each platform.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext, suppress
from typing import Any, ClassVar, Generic

from agentsup.channels.core.live import placeholders
from agentsup.channels.core.live.live_answer import LiveAnswer
from agentsup.channels.core.live.placeholders import Placeholder, StreamContext, is_delivered_here
from agentsup.channels.core.live.rate_limit import StreamMode
from agentsup.channels.core.live.signs import Reactions, SenderT, Typing
from agentsup.channels.core.receiving.messages import BotDependencies
from agentsup.kit.log import get_logger
from agentsup.kit.tasks import OwnerClosed, TaskOwner, time_limit
from agentsup.model.agent import Streaming
from agentsup.model.errors import Overloaded, StoreUnavailable
from agentsup.observe import LiveTurn

_log = get_logger(__name__)

_CLOSE_S = 1.0
_LOAD_PAUSE_S = 2.0


class StreamSet(ABC, Generic[SenderT]):
    """The streams of one life of a bot, and its signs."""

    channel: ClassVar[str]
    typing_kind: ClassVar[type[Typing[Any]]]
    reactions_kind: ClassVar[type[Reactions[Any, Any]]]

    def __init__(self, deps: BotDependencies, sender: SenderT) -> None:
        self._deps = deps
        self._sender = sender
        self._owner = TaskOwner(f"streams:{deps.agent_id}")
        self._typing = self.typing_kind(sender, deps.clock, self._owner)
        self._reactions = self.reactions_kind(sender, deps, self._owner)
        self._answers: dict[str, LiveAnswer[Any]] = {}
        self._is_loaded = False
        self._loading = asyncio.Lock()
        self._context = StreamContext(
            channel=self.channel,
            agent_id=deps.agent_id,
            database=deps.database,
            clock=deps.clock,
            streaming=self._wanted,
            mode=self._mode,
            typing=self._show_typing,
        )

    @abstractmethod
    def _new(
        self, message_id: str, conversation: str, left: Placeholder | None = None
    ) -> LiveAnswer[Any]:
        """Make a stream. Raises ``ValueError`` if ``conversation`` is no valid address."""

    @abstractmethod
    def _target(self, message_id: str, conversation: str, platform_id: str) -> Any:
        """Return a person's message as the reactions name it. Raises ``ValueError`` if
        ``conversation`` is no valid address."""

    def accepted(self, message_id: str, conversation: str, platform_id: str) -> None:
        """Set the seen reaction on a person's message, if the setting says so. Never blocks."""
        if self._wanted().reactions:
            with suppress(ValueError):  # a mere sign must not fail what was accepted
                target = self._target(message_id, conversation, platform_id)
                self._reactions.accepted(message_id, target)

    async def _restore_signs(self) -> None:
        """Take over the signs that earlier lives set.

        Raises ``StoreUnavailable`` or ``Overloaded``.
        """
        await self._reactions.restore()

    def _show_typing(self, conversation: str) -> AbstractContextManager[None]:
        return self._typing.during(conversation) if self._wanted().typing else nullcontext()

    async def run(self, draining: asyncio.Event) -> None:
        """Show answers while they are written, until ``draining`` is set.

        Then nothing is cleaned up: the placeholders are stored, and the next life goes on with
        them.
        """
        async with AsyncExitStack() as ends:
            # First, because a sign may be set while earlier streams are still being loaded.
            ends.push_async_callback(self._close)
            while not draining.is_set() and not await self._load():
                await self._deps.clock.sleep(_LOAD_PAUSE_S)
            ends.callback(self._deps.live.follow(self._deps.agent_id, self.channel, self._begin))
            await draining.wait()

    async def _close(self) -> None:
        self._reactions.close()
        try:
            await self._rest()
        finally:
            # The bot's own time limit may cut the wait short; its streams end all the same.
            await self._owner.close(_CLOSE_S)

    async def _rest(self) -> None:
        """Wait for requests under way: one may send a placeholder, whose id must be stored."""
        answers = tuple(self._answers.values())
        for answer in answers:
            answer.stop_sending()
        try:
            async with time_limit(_CLOSE_S):
                for answer in answers:
                    await answer.rest()
        except TimeoutError:
            _log.warning("a stream under way was cut off")

    async def takeover(self, message_id: str) -> str | None:
        """End the stream of ``message_id``, because its whole answer is about to be delivered.

        Returns the id of the platform's message in which the answer was streamed, into which its
        beginning is to be edited, or None to send it as a new message. Takes at most about two
        seconds, returns the same id when it is called again, and raises nothing.
        """
        if not await self._load():
            return None
        answer = self._answers.get(message_id)
        return None if answer is None else await answer.takeover()

    # -- turns -------------------------------------------------------------------------------------

    def _begin(self, turn: LiveTurn) -> None:
        known = self._answers.get(turn.message_id)
        if known is not None:
            known.begin(turn)
            return
        if self._mode() is StreamMode.OFF and not self._wanted().typing:
            return
        try:
            answer = self._new(turn.message_id, turn.conversation.partition(":")[2])
        except ValueError:
            return
        answer.begin(turn)
        self._start(turn.message_id, answer, turn.conversation)

    def _start(self, message_id: str, answer: LiveAnswer[Any], conversation: str = "") -> None:
        """Start the task of a stream, which shows the answer only if it goes to ``conversation``.

        The streams of an earlier life pass none and are not checked.
        """
        try:
            self._owner.spawn(
                self._serve(message_id, answer, conversation), name=f"stream:{message_id}"
            )
        except OwnerClosed:
            answer.detach()
        else:
            self._answers[message_id] = answer

    async def _serve(self, message_id: str, answer: LiveAnswer[Any], conversation: str) -> None:
        try:
            if not conversation or await self._is_ours(message_id, conversation):
                await answer.run()
        finally:
            answer.detach()
            del self._answers[message_id]

    async def _is_ours(self, message_id: str, conversation: str) -> bool:
        """Whether this bot delivers the answer: another agent may work for this conversation."""
        whose = (message_id, self._deps.agent_id, conversation)
        try:
            return await self._deps.database.read(is_delivered_here, *whose, name="stream.whose")
        except (StoreUnavailable, Overloaded):
            return False

    async def _load(self) -> bool:
        """Take over the streams of earlier lives, once; False if the store is not available."""
        async with self._loading:
            if self._is_loaded:
                return True
            try:
                left = await self._deps.database.read(
                    placeholders.all_of, self.channel, self._deps.agent_id, name="stream.load"
                )
                await self._restore_signs()
            except (StoreUnavailable, Overloaded) as error:
                _log.warning(f"what was streamed before is not known yet: {error}")
                return False
            for row in left:
                answer = self._new(row.message_id, row.conversation, row)
                self._start(row.message_id, answer)
            self._is_loaded = True
            return True

    # -- settings ----------------------------------------------------------------------------------

    def _wanted(self) -> Streaming:
        return self._deps.spec().streaming

    def _mode(self) -> StreamMode:
        return StreamMode(self._wanted().mode)
