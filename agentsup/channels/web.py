"""The channel of the web page: its clients read the durable events, so delivery is the event."""

from __future__ import annotations

from agentsup.model.channel import Begin, Delivery, DeliveryOutcome, OutboxPart

NAME = "web"


class WebChannel:
    """Implements ``model.channel.Channel`` as the console's does: a tab that was away reads on by
    sequence number and so misses and doubles nothing."""

    name = NAME
    idempotent = True
    in_pieces = False

    async def deliver(self, part: OutboxPart, begin: Begin) -> Delivery:
        del part, begin
        return Delivery(DeliveryOutcome.DELIVERED)
