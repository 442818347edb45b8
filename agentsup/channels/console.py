"""The console channel: its clients read the durable events, so delivery is the event itself."""

from __future__ import annotations

from agentsup.model.channel import Begin, Delivery, DeliveryOutcome, OutboxPart

NAME = "console"
HOME_CONVERSATION = "local"
"""Where notices go for an agent that nobody has talked to yet."""


class ConsoleChannel:
    """Implements ``model.channel.Channel``.

    The relay writes the CHAT_OUT event in the transaction that marks the part delivered; clients
    over ``/ws`` read events by sequence number and so miss and double nothing.
    """

    name = NAME
    idempotent = True
    in_pieces = False

    async def deliver(self, part: OutboxPart, begin: Begin) -> Delivery:
        del part, begin
        return Delivery(DeliveryOutcome.DELIVERED)
