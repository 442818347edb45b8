"""The streams of one Matrix bot: edits of an event, typing, and eyes on what people said."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial

from agentsup.channels.matrix import placeholders
from agentsup.channels.matrix.live_answer import LiveAnswer
from agentsup.channels.matrix.place import Place, parse
from agentsup.channels.matrix.status import Reactions, Typing
from agentsup.channels.matrix.upkeep import Bench, Outbound
from agentsup.channels.streams import AnyStreams, StreamDeps

__all__ = ["StreamDeps", "Streams"]


class Streams(AnyStreams[str]):
    """One for each life of a bot."""

    channel = "matrix"

    def __init__(self, deps: StreamDeps, sender: Outbound) -> None:
        super().__init__(deps)
        self._typing = Typing(sender, deps.clock, self._owner)
        self._reactions = Reactions(sender, deps.clock, deps.database, deps.agent_id, self._owner)
        self._bench = Bench(
            database=deps.database,
            clock=deps.clock,
            agent_id=deps.agent_id,
            sender=sender,
            streaming=self._wanted,
            mode=self._mode,
            typing=self._show_typing,
        )

    def accepted(self, message_id: str, conversation: str, event_id: str) -> None:
        """A person's message became ``message_id``: show that it was seen, where that is wanted.
        Returns at once."""
        if not self._wanted().reactions:
            return
        with suppress(ValueError):  # a courtesy must not fail what was accepted
            self._reactions.accepted(message_id, parse(conversation), event_id)

    def _new(self, message_id: str, conversation: str) -> LiveAnswer:
        return LiveAnswer(self._bench, message_id, parse(conversation))

    async def _left(self) -> Sequence[tuple[str, LiveAnswer]]:
        left = await self._deps.database.read(
            partial(placeholders.all_of, agent_id=self._deps.agent_id), name="stream.load"
        )
        await self._reactions.restore()
        return [
            (row.message_id, LiveAnswer(self._bench, row.message_id, parse(row.conversation), row))
            for row in left
        ]

    def _close_signs(self) -> None:
        self._reactions.close()

    def _show_typing(self, place: Place) -> AbstractContextManager[None]:
        return self._typing.during(place) if self._wanted().typing else nullcontext()
