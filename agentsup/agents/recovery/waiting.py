"""A person whose message waits for a provider is told so: once for each message, with its transaction."""

from __future__ import annotations

from datetime import UTC, datetime

from agentsup.agents.budget.limits import zone_of
from agentsup.agents.recovery.troubles import Trouble
from agentsup.catalogue import words
from agentsup.mailbox import attempts, notices
from agentsup.model.agent import AgentSpec
from agentsup.model.message import Message
from agentsup.store.database import Tx

LEAST_MS = 20_000
"""Shorter waits pass without a word."""
_SAID = frozenset({Trouble.PROVIDER, Trouble.RATE_LIMIT, Trouble.BUSY})
"""Of the others it is only known that they may pass."""


def tell_tx(
    tx: Tx,
    message: Message,
    *,
    spec: AgentSpec,
    provider: str,
    trouble: Trouble,
    at: int,
    own_ms: int,
) -> bool:
    """Tell the people of ``message``, which this transaction has put back into the queue; ``at`` is
    wall ms, ``own_ms`` the same by the mailbox's steady clock, ``provider`` whose service it waits for.
    True where a notice goes out: the wait is long, somebody reads the answer in a chat, and nothing was
    said of this message before."""
    to = message.deliver_to
    if to.kind != "chat" or to.silent:
        return False
    not_before = tx.scalar(
        "SELECT not_before FROM messages WHERE message_id = ? AND state = 'queued'",
        (message.message_id,),
    )
    pause_ms = (not_before or 0) - own_ms
    if pause_ms < LEAST_MS or not attempts.told_wait_tx(tx, message.message_id, at):
        return False
    notices.notify_tx(
        tx,
        message_id=message.message_id,
        agent_id=to.agent_id or message.agent_id,
        session_id=message.session_id,
        text=sentence(message, spec, provider, trouble, pause_ms=pause_ms, until=at + pause_ms),
        at=at,
        place=(to.channel, to.conversation),
    )
    return True


def sentence(
    message: Message,
    spec: AgentSpec,
    provider: str,
    trouble: Trouble,
    *,
    pause_ms: int,
    until: int,
) -> str:
    """What does not answer, that the message is kept, when it is tried again (``until``, wall ms),
    and how to give it up. Only an operator reads the provider's name, which may be an endpoint."""
    say = words(message.principal.language)
    why = say(f"wait.{(trouble if trouble in _SAID else Trouble.TRANSIENT).value}")
    if message.principal.is_operator and trouble is not Trouble.BUSY:
        why = f"{why} ({provider})"
    here = datetime.fromtimestamp(until / 1000, tz=UTC).astimezone(zone_of(spec.user_timezone))
    return say(
        "wait.told",
        agent=spec.name,
        why=why,
        pause=_length(pause_ms / 1000),
        when=f"{here:%H:%M %Z}".strip(),
    )


def _length(seconds: float) -> str:
    """About so long, in the unit that fits."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h"
