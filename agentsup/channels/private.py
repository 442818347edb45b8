"""Words that are for one person's eyes, on platforms where others may be in the room."""

from __future__ import annotations

from typing import Final

__all__ = ["ONLY_WITH"]

ONLY_WITH: Final = "only_with"
"""In a part's body: the person, by the platform's id, with whom the bot must be alone there when it
is sent. Where they are not, it is not sent, and said to the operator in another way."""
