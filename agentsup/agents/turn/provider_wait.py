"""The notice that a message waits for its provider: once for each message, in the transaction that
queues it again."""

from __future__ import annotations

from datetime import UTC, datetime

from agentsup.agents.budget.limits import zone_of
from agentsup.agents.recovery.failure_kinds import FailureKind
from agentsup.agents.turn.ending import notify_tx
from agentsup.catalogue import words
from agentsup.mailbox.messages import attempts, need_message
from agentsup.model.agent import AgentSpec
from agentsup.model.message import Message, MessageState
from agentsup.store import Tx

_TIME, _DAY = "%H:%M %Z", "%Y-%m-%d %H:%M %Z"
_DAY_MS = 20 * 3_600_000
"""If the wait is longer, the time of its end is told with the day."""
LEAST_MS = 20_000
"""No notice is sent for a shorter wait."""
_SAID = frozenset({FailureKind.PROVIDER, FailureKind.RATE_LIMIT, FailureKind.BUSY})
"""Failure kinds with a text of their own. The others may pass; more is not known."""


def notify_wait_tx(
    tx: Tx,
    message: Message,
    *,
    spec: AgentSpec,
    provider: str,
    kind: FailureKind,
    at: int,
    own_ms: int,
) -> bool:
    """Notify the people of ``message``, which this transaction has queued again.

    ``at`` is wall-clock ms, ``own_ms`` the same time by the mailbox's steady clock, ``provider``
    the service that it waits for. Returns whether a notice goes out: the wait is at least
    ``LEAST_MS``, the answer goes to a chat, and this message had no notice before."""
    to = message.deliver_to
    if to.kind != "chat" or to.silent:
        return False
    queued = need_message(tx, message.message_id)
    pause_ms = (queued.not_before or 0) - own_ms if queued.state is MessageState.QUEUED else 0
    if pause_ms < LEAST_MS or not attempts.note_wait_notice_tx(tx, message.message_id, at):
        return False
    until = at + pause_ms
    text = sentence(message, spec, provider, kind, pause_ms=pause_ms, until=until)
    notify_tx(tx, message, text, at)
    return True


def sentence(
    message: Message,
    spec: AgentSpec,
    provider: str,
    kind: FailureKind,
    *,
    pause_ms: int,
    until: int,
) -> str:
    """The text of the notice: what does not answer, that the message is kept, when it is tried
    again (``until``, wall-clock ms), and how to cancel it. Only an operator reads the provider's
    name, which may be an endpoint."""
    say = words(message.principal.language)
    why = say(f"wait.{(kind if kind in _SAID else FailureKind.TRANSIENT).value}")
    if message.principal.is_operator and kind is not FailureKind.BUSY:
        why = f"{why} ({provider})"
    here = datetime.fromtimestamp(until / 1000, tz=UTC).astimezone(zone_of(spec.user_timezone))
    return say(
        "wait.note",
        agent=spec.name,
        why=why,
        pause=_length(pause_ms / 1000),
        when=f"{here:{_DAY if pause_ms > _DAY_MS else _TIME}}".strip(),
    )


def _length(seconds: float) -> str:
    """A rounded length of time, in the unit that fits."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.0f} d"
