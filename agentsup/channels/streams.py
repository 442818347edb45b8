"""Streams: the answers of one bot while they are written, and the signs around them.

Each running turn of the agent in a chat gets a task of its own, so a chat that is slow or broken
holds up nobody. The whole answer never depends on any of it: it comes through the outbox, which
asks ``takeover`` for the message that was streamed, if there is one (P1, P3). What a stream is made
of, and what of one outlives its process, is each platform's own.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import ClassVar, Generic, Protocol, TypeVar

from agentsup.channels.pace import Mode
from agentsup.channels.streamed import is_shown_here
from agentsup.kit.clock import Clock
from agentsup.kit.tasks import OwnerClosed, TaskOwner
from agentsup.model.agent import AgentSpec, Streaming
from agentsup.model.errors import Overloaded, StoreUnavailable
from agentsup.observe.live import LiveHub, LiveTurn
from agentsup.store.database import Database

__all__ = ["AnyStreams", "Shown", "StreamDeps"]

_log = logging.getLogger(__name__)

_CLOSE_S = 1.0
_LOAD_PAUSE_S = 2.0

Id = TypeVar("Id")
Id_co = TypeVar("Id_co", covariant=True)


class StreamDeps(Protocol):
    """What a bot's life has at hand."""

    @property
    def database(self) -> Database: ...
    @property
    def live(self) -> LiveHub: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def agent_id(self) -> str: ...
    @property
    def spec(self) -> Callable[[], AgentSpec]: ...


class Shown(Protocol[Id_co]):
    """The stream of one message."""

    def begin(self, turn: LiveTurn) -> None:
        """Show this turn; it replaces an earlier segment of the message."""

    def leave(self) -> None:
        """Hear no more of the turn."""

    def hush(self) -> None:
        """Begin to send nothing more."""

    async def rest(self) -> None:
        """Wait until nothing is under way."""

    async def run(self) -> None:
        """Show the turn, and in the end give what was shown the end it deserves."""

    async def takeover(self) -> Id_co | None:
        """See ``AnyStreams.takeover``."""


class AnyStreams(ABC, Generic[Id]):
    """One for each life of a bot. ``Id`` is what the platform calls its messages by."""

    channel: ClassVar[str]

    def __init__(self, deps: StreamDeps) -> None:
        self._deps = deps
        self._owner = TaskOwner(f"streams:{deps.agent_id}")
        self._answers: dict[str, Shown[Id]] = {}
        self._is_loaded = False
        self._loading = asyncio.Lock()

    @abstractmethod
    def _new(self, message_id: str, conversation: str) -> Shown[Id]:
        """A stream there. Raises ``ValueError`` where there is no such place."""

    @abstractmethod
    async def _left(self) -> Sequence[tuple[str, Shown[Id]]]:
        """The streams that an earlier life left, by message; its other signs are taken up, too.

        Raises ``StoreUnavailable`` or ``Overloaded``.
        """

    @abstractmethod
    def _close_signs(self) -> None:
        """Set no more signs."""

    async def run(self, draining: asyncio.Event) -> None:
        """Show what is written until ``draining`` is set; then leave all as it is: whatever a
        placeholder still shows is on record, and the next life goes on with it."""
        async with AsyncExitStack() as ends:
            # First, because a sign may be set while what was left is still looked for.
            ends.push_async_callback(self._close)
            while not draining.is_set() and not await self._load():
                await self._deps.clock.sleep(_LOAD_PAUSE_S)
            ends.callback(self._deps.live.follow(self._deps.agent_id, self.channel, self._begin))
            await draining.wait()

    async def _close(self) -> None:
        self._close_signs()
        await self._rest()
        await self._owner.close(_CLOSE_S)

    async def _rest(self) -> None:
        """What is under way may be a placeholder being born, whose id must get on record."""
        answers = tuple(self._answers.values())
        for answer in answers:
            answer.hush()
        try:
            async with asyncio.timeout(_CLOSE_S):
                for answer in answers:
                    await answer.rest()
        except TimeoutError:
            _log.warning("a stream under way was cut off")

    async def takeover(self, message_id: str) -> Id | None:
        """The whole answer to ``message_id`` is about to be delivered: nothing of its stream is
        sent any more. Returns the id of the platform's message in which it was streamed, into
        which the beginning of the answer is to be edited; None to send it as a new one.

        Takes at most about two seconds, the same id is given again at a repeat; raises nothing.
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
        if self._mode() is Mode.OFF and not self._wanted().typing:
            turn.leave()
            return
        try:
            answer = self._new(turn.message_id, turn.conversation.partition(":")[2])
        except ValueError:
            turn.leave()
            return
        answer.begin(turn)
        self._start(turn.message_id, answer, turn.conversation)

    def _start(self, message_id: str, answer: Shown[Id], conversation: str = "") -> None:
        """``conversation``: whose turn must belong there for the answer to be shown."""
        try:
            self._owner.spawn(
                self._serve(message_id, answer, conversation), name=f"stream:{message_id}"
            )
        except OwnerClosed:
            answer.leave()
        else:
            self._answers[message_id] = answer

    async def _serve(self, message_id: str, answer: Shown[Id], conversation: str) -> None:
        try:
            if not conversation or await self._is_ours(message_id, conversation):
                await answer.run()
        finally:
            answer.leave()
            del self._answers[message_id]

    async def _is_ours(self, message_id: str, conversation: str) -> bool:
        """Another agent may work for this chat; its words are not this bot's."""
        here = partial(
            is_shown_here,
            message_id=message_id,
            agent_id=self._deps.agent_id,
            place=conversation,
        )
        try:
            return await self._deps.database.read(here, name="stream.whose")
        except (StoreUnavailable, Overloaded):
            return False

    async def _load(self) -> bool:
        """Take up what an earlier life left; False if the store can't say."""
        async with self._loading:
            if self._is_loaded:
                return True
            try:
                left = await self._left()
            except (StoreUnavailable, Overloaded) as error:
                _log.warning("what was streamed before is not known yet: %s", error)
                return False
            for message_id, answer in left:
                self._start(message_id, answer)
            self._is_loaded = True
            return True

    # -- what is wanted ----------------------------------------------------------------------------

    def _wanted(self) -> Streaming:
        return self._deps.spec().streaming

    def _mode(self) -> Mode:
        return Mode(self._wanted().mode)
