"""The buttons of a reminder, in the form in which the channel of its chat shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentsup.channels.core.sending import mint_tx
from agentsup.kit.entropy import Entropy
from agentsup.mailbox.messages import WEB
from agentsup.model.control import CommandButtons
from agentsup.model.message import DeliverTo
from agentsup.model.platforms import PLATFORMS
from agentsup.store import Tx

_PLATFORMS = frozenset(each.name for each in PLATFORMS)


def offered_in(
    entropy: Entropy, tx: Tx, chat: DeliverTo, buttons: CommandButtons, at: int
) -> Mapping[str, Any]:
    """The fields of a notice in ``chat`` with these buttons; none on a channel without buttons."""
    if chat.channel == WEB:
        return {"offers": [(each.label, each.command) for row in buttons for each in row]}
    if chat.channel not in _PLATFORMS:
        return {}
    shown = mint_tx(
        tx,
        buttons,
        agent_id=chat.agent_id,
        conversation=chat.conversation,
        origin="",
        at=at,
        entropy=entropy,
        channel=chat.channel,
    )
    return {"buttons": shown}
