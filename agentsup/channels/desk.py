"""Words of a bot to people, and writing that outlasts a store in trouble: for all who receive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from agentsup.channels.buttons import mint_tx
from agentsup.kit.clock import Clock
from agentsup.kit.descriptors import is_shortage
from agentsup.kit.entropy import Entropy
from agentsup.mailbox import outbox
from agentsup.model.control import Button
from agentsup.model.errors import AgentsupError, Overloaded, StoreUnavailable
from agentsup.store.database import Database, Tx
from agentsup.store.failures import Trouble

__all__ = ["Desk", "is_over", "notice_tx", "write_patiently"]

_STORE_PAUSE_S = 1.0


class Desk(Protocol):
    """What is needed of whoever receives."""

    @property
    def channel(self) -> str: ...
    @property
    def agent_id(self) -> str: ...
    @property
    def database(self) -> Database: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def entropy(self) -> Entropy: ...


def notice_tx(
    tx: Tx,
    desk: Desk,
    conversation: str,
    text: str,
    *,
    buttons: Sequence[Sequence[Button]] = (),
    origin: str = "",
    **facts: Any,
) -> None:
    """Put plain text for people into the outbox, with buttons if there are any."""
    at = desk.clock.now_ms()
    body: dict[str, Any] = {"text": text, "plain": True, **facts}
    if buttons:
        body["buttons"] = mint_tx(
            tx,
            buttons,
            agent_id=desk.agent_id,
            conversation=conversation,
            origin=origin,
            at=at,
            entropy=desk.entropy,
            channel=desk.channel,
        )
    outbox.add_tx(
        tx,
        agent_id=desk.agent_id,
        channel=desk.channel,
        conversation=conversation,
        kind="notice",
        body=body,
        at=at,
    )


async def write_patiently(desk: Desk, fn: Callable[[Tx], object], name: str) -> None:
    """Write, and wait while the store can't; raises ``StoreUnavailable`` once it is closed."""
    while True:
        try:
            await desk.database.write(fn, name=name)
        except (StoreUnavailable, Overloaded) as error:
            if is_over(error):
                raise
            await desk.clock.sleep(_STORE_PAUSE_S)
        else:
            return


def is_over(error: Exception) -> bool:
    """Whether the store is closed for good, so that waiting for it has no use."""
    over = (Trouble.CLOSED.value, Trouble.STOPPED.value)
    return isinstance(error, AgentsupError) and error.facts.get("reason") in over


def is_passing(error: Exception) -> bool:
    """Whether it is no fault of what was handled, which is tried again: the store can't now, or the
    machine lacks descriptors or memory."""
    return isinstance(error, StoreUnavailable | Overloaded) or is_shortage(error)
