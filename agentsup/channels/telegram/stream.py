"""The streams of one Telegram bot: drafts and edits, typing, and eyes on what people said."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from agentsup.channels.streams import AnyStreams, StreamDeps
from agentsup.channels.telegram import placeholders
from agentsup.channels.telegram.live_answer import LiveAnswer
from agentsup.channels.telegram.place import Place, parse
from agentsup.channels.telegram.status import Courtesies, Outgoing, Reactions, Typing
from agentsup.channels.telegram.upkeep import Bench

__all__ = ["StreamDeps", "Streams"]


class Streams(AnyStreams[int]):
    """One for each life of a bot."""

    channel = "telegram"

    def __init__(self, deps: StreamDeps, sender: Outgoing) -> None:
        super().__init__(deps)
        courtesies = Courtesies(sender)
        self._typing = Typing(courtesies, deps.clock, self._owner)
        self._reactions = Reactions(courtesies, deps.clock, deps.database, self._owner)
        self._bench = Bench(
            database=deps.database,
            clock=deps.clock,
            agent_id=deps.agent_id,
            sender=courtesies,
            streaming=self._wanted,
            mode=self._mode,
            typing=self._show_typing,
        )

    def accepted(self, message_id: str, conversation: str, platform_message_id: int) -> None:
        """A person's message became ``message_id``: show that it was seen, where that is wanted.
        Returns at once."""
        if self._wanted().reactions:
            self._reactions.accepted(message_id, parse(conversation), platform_message_id)

    def _new(self, message_id: str, conversation: str) -> LiveAnswer:
        return LiveAnswer(self._bench, message_id, parse(conversation))

    async def _left(self) -> Sequence[tuple[str, LiveAnswer]]:
        left = await self._deps.database.read(
            partial(placeholders.all_of, agent_id=self._deps.agent_id), name="stream.load"
        )
        if self._wanted().reactions:
            await self._reactions.restore(self._deps.agent_id)
        return [
            (row.message_id, LiveAnswer(self._bench, row.message_id, parse(row.conversation), row))
            for row in left
        ]

    def _close_signs(self) -> None:
        self._reactions.close()

    def _show_typing(self, place: Place) -> AbstractContextManager[None]:
        return self._typing.during(place) if self._wanted().typing else nullcontext()
