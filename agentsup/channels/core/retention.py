"""Retention rules for rows of any channel that nobody has removed earlier."""

from __future__ import annotations

from typing import Final

from agentsup.channels.core.receiving import bot_offers, rows, strangers
from agentsup.mailbox.messages import of_open_message
from agentsup.store import Retention

_DAY_MS: Final = 86_400_000
_LATE_MS: Final = 30 * _DAY_MS
"""A press that comes later is still answered as too late."""


def retention_rules(*, keep_days: int = 90) -> tuple[Retention, ...]:
    """The rules of the tables that platforms share; ``keep_days`` is how long ended messages are kept.

    A placeholder is taken over by the next life of its bot. It stays until its message has ended,
    and is forgotten later only if no life could remove it: its bot does not come back, or the
    platform can't be asked any more.
    """
    return (
        *rows.retention_rules(),
        *strangers.retention_rules(),
        *bot_offers.retention_rules(),
        Retention("buttons", "expires_at < :cutoff", _LATE_MS, key="token"),
        Retention("presses", "at < :cutoff", _LATE_MS, key="press_id"),
        Retention("question_ends", "at < :cutoff", keep_days * _DAY_MS, key="question_id"),
        Retention(
            "placeholders",
            f"at < :cutoff AND NOT {of_open_message('placeholders')}",
            _LATE_MS,
            key="channel, agent_id, message_id",
        ),
    )
