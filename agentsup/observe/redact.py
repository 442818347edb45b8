"""Secrets by value: whatever text a secret gets into, it does not come out (P7)."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

__all__ = ["MASK", "MaskedStream", "Redactor"]

MASK = "[redacted]"
MIN_CHARS = 4
"""A shorter secret would make a hole in every other word; it is not looked for."""
_MAX_DEPTH = 8


class Redactor:
    """Knows the secrets of this process. Adding and redacting may happen in different threads."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._forms: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None
        self._longest = 0
        self._sorted: tuple[str, ...] = ()
        self.add_all(secrets)

    def add(self, secret: str) -> bool:
        """From now on ``secret`` is masked, also quoted for JSON, Python or a URL.

        False if it is too short to be looked for (under 4 characters).
        """
        if len(secret.strip()) < MIN_CHARS:
            return False
        self.add_all((secret,))
        return True

    def add_all(self, secrets: Iterable[str]) -> None:
        """``add`` for many at once: the search is prepared only once."""
        long_enough = (secret for secret in secrets if len(secret.strip()) >= MIN_CHARS)
        known = self._forms.union(*map(_forms, long_enough))
        if known == self._forms:
            return
        # Longest first, so that a secret which contains another one goes as a whole.
        alternatives = sorted(known, key=lambda form: (-len(form), form))
        self._pattern = re.compile("|".join(map(re.escape, alternatives)))
        self._longest = len(alternatives[0])
        self._sorted = tuple(sorted(known))
        self._forms = known

    def text(self, text: str, limit: int | None = None) -> str:
        """``text`` without secrets, at most about ``limit`` characters of it.

        The cut never leaves a part of a secret standing.
        """
        pattern = self._pattern
        if limit is None or len(text) <= limit:
            return text if pattern is None else pattern.sub(MASK, text)
        cut = limit
        if pattern is not None:
            window = text[: limit + self._longest]
            for match in pattern.finditer(window):
                if match.start() < limit < match.end():
                    cut = match.start()
        kept = text[:cut] if pattern is None else pattern.sub(MASK, text[:cut])
        return f"{kept}… [{len(text) - cut} more characters]"

    def stream(self) -> MaskedStream:
        """For a text that comes in pieces."""
        return MaskedStream(self)

    def open_from(self, text: str) -> int:
        """Where the end of ``text`` begins that could still become a secret, or a longer one;
        ``len(text)`` if nothing of it could."""
        pattern, known = self._pattern, self._sorted
        if pattern is None:
            return len(text)
        cut = len(text)
        for start in range(max(0, len(text) - self._longest + 1), len(text)):
            end = text[start:]
            at = bisect_left(known, end)
            # Its own form may stand first; a longer one that begins so follows it at once.
            if any(form != end and form.startswith(end) for form in known[at : at + 2]):
                cut = start
                break
        for match in pattern.finditer(text):
            if match.start() < cut < match.end():
                return match.start()
        return cut

    def value(self, value: Any, limit: int | None = None) -> Any:
        """``value`` as plain data (JSON types) without secrets, nested ones included.

        What is no plain data becomes its ``repr``; deeper than 8 levels likewise.
        """
        return self._value(value, limit, 0)

    def _value(self, value: Any, limit: int | None, depth: int) -> Any:
        if value is None or isinstance(value, bool | int | float):
            # A secret may be all digits.
            text = str(value)
            return value if self.text(text) == text else MASK
        if isinstance(value, str):
            return self.text(str(value), limit)
        if depth < _MAX_DEPTH:
            if isinstance(value, Mapping):
                return {
                    self.text(str(key), limit): self._value(item, limit, depth + 1)
                    for key, item in value.items()
                }
            if isinstance(value, list | tuple | set | frozenset):
                return [self._value(item, limit, depth + 1) for item in value]
        return self.text(_repr(value), limit)


class MaskedStream:
    """A text in pieces, without secrets that stand across two of them.

    What may be the beginning of a secret is held back until it is seen not to be one.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = ""

    def take(self, piece: str) -> str:
        """What can be shown now that ``piece`` has come."""
        text = self._held + piece
        cut = self._redactor.open_from(text)
        self._held = text[cut:]
        return self._redactor.text(text[:cut])

    def rest(self) -> str:
        """What was held back: nothing follows it."""
        held, self._held = self._held, ""
        return self._redactor.text(held)


def _repr(value: Any) -> str:
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}"
    try:
        return repr(value)
    except Exception as error:  # noqa: BLE001
        # supervision boundary: a log line must not fail by what it tells about
        return f"<{type(value).__name__} without repr: {type(error).__name__}>"


def _forms(secret: str) -> set[str]:
    """The ways in which a secret is commonly written."""
    forms = {secret, secret.strip()}
    for form in tuple(forms):
        forms |= {
            json.dumps(form)[1:-1],
            json.dumps(form, ensure_ascii=False)[1:-1],
            repr(form)[1:-1],
            quote(form, safe="", errors="replace"),
            quote(form, errors="replace"),
            quote_plus(form, errors="replace"),
        }
    return forms
