"""Estimates the length of a text in tokens. Pure. Every model counts differently."""

from __future__ import annotations

BYTES_PER_TOKEN = 4
"""Bytes of UTF-8. About right for European languages in Latin letters, too low for others."""


def tokens(text: str) -> int:
    """Estimated tokens of a text."""
    return tokens_of_bytes(len(text.encode("utf-8", "replace")))


def tokens_of_bytes(size: int) -> int:
    """Estimated tokens of so many bytes of text."""
    return -(-size // BYTES_PER_TOKEN)


def clipped(text: str, most: int) -> str:
    """The beginning of a text, at most ``most`` estimated tokens; cut between characters."""
    if tokens(text) <= most:
        return text
    mark = "…"
    room = max(0, most * BYTES_PER_TOKEN - len(mark.encode()))
    head = text.encode("utf-8", "replace")[:room].decode("utf-8", "ignore").rstrip()
    return head + mark if most > 0 else ""
