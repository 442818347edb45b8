"""The streams of one Matrix bot: edits of an event, typing, and seen reactions."""

from __future__ import annotations

from contextlib import suppress

from agentsup.channels.core.live.placeholders import Placeholder
from agentsup.channels.core.live.streams import StreamSet
from agentsup.channels.core.receiving.messages import BotDependencies
from agentsup.channels.matrix.address import parse
from agentsup.channels.matrix.live_answer import LiveAnswer
from agentsup.channels.matrix.placeholder_updates import EventUpdates
from agentsup.channels.matrix.seen_reactions import SeenReaction
from agentsup.channels.matrix.sender import Sender
from agentsup.channels.matrix.status import Reactions, Typing


class Streams(StreamSet):
    """The live answers of one bot in one life."""

    channel = "matrix"

    def __init__(self, deps: BotDependencies, sender: Sender) -> None:
        super().__init__(deps)
        self._sender = sender
        self._typing = Typing(sender, deps.clock, self._owner)
        self._reactions = Reactions(sender, deps, self._owner)

    def accepted(self, message_id: str, conversation: str, event_id: str) -> None:
        """A person's message became ``message_id``: show that it was seen, where that is wanted.
        Returns at once."""
        if not self._wanted().reactions:
            return
        with suppress(ValueError):  # a mere sign must not fail what was accepted
            room_id = parse(conversation).room_id
            self._reactions.accepted(message_id, SeenReaction(message_id, room_id, event_id))

    def _new(
        self, message_id: str, conversation: str, left: Placeholder | None = None
    ) -> LiveAnswer:
        address = parse(conversation)
        return LiveAnswer(EventUpdates(self._context, message_id, address, self._sender, left))
