"""Retention rules for rows of Matrix that nobody has removed earlier."""

from __future__ import annotations

from typing import Final

from agentsup.mailbox.messages import of_open_message
from agentsup.store import Retention

_LATE_MS: Final = 30 * 86_400_000


def retention_rules() -> tuple[Retention, ...]:
    """The rules of the tables that only Matrix has.

    A seen reaction is taken over by the next life of its bot, as a placeholder is.
    """
    return (
        Retention("matrix_cards", "at < :cutoff", _LATE_MS, key="agent_id, event_id"),
        Retention(
            "matrix_eyes",
            f"at < :cutoff AND NOT {of_open_message('matrix_eyes')}",
            _LATE_MS,
            key="agent_id, message_id",
        ),
    )
