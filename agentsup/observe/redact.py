"""Redaction of secrets by value: a known secret is masked in any text (P7)."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

MASK = "[redacted]"
MIN_CHARS = 4
"""Shorter secrets are not masked, since they would occur in many ordinary words."""
_MAX_DEPTH = 8


class Redactor:
    """Holds the secrets of this process. Adding and redacting may happen in different threads."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._forms: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None
        self._longest = 0
        self._sorted: tuple[str, ...] = ()
        self.add_all(secrets)

    def add(self, secret: str) -> None:
        """Mask ``secret`` from now on, also in its quoted forms for JSON, Python or a URL.

        One that is too short (under 4 characters) is not masked.
        """
        self.add_all((secret,))

    def add_all(self, secrets: Iterable[str]) -> None:
        """``add`` for many at once: the pattern is built only once."""
        long_enough = (secret for secret in secrets if len(secret.strip()) >= MIN_CHARS)
        known = self._forms.union(*map(_forms, long_enough))
        if known == self._forms:
            return
        # Longest first, so that a secret that contains another one is masked as a whole.
        alternatives = sorted(known, key=lambda form: (-len(form), form))
        self._pattern = re.compile("|".join(map(re.escape, alternatives)))
        self._longest = len(alternatives[0])
        self._sorted = tuple(sorted(known))
        self._forms = known

    def text(self, text: str, limit: int | None = None) -> str:
        """``text`` without secrets, at most about ``limit`` characters of it.

        The cut never leaves a part of a secret.
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
        masked = text[:cut] if pattern is None else pattern.sub(MASK, text[:cut])
        return f"{masked}… [{len(text) - cut} more characters]"

    def stream(self) -> MaskedStream:
        """A masking stream, for a text that comes in pieces."""
        return MaskedStream(self)

    def open_from(self, text: str) -> int:
        """The position from which the end of ``text`` could still become a secret, or a longer one;
        ``len(text)`` if it could not."""
        pattern, known = self._pattern, self._sorted
        if pattern is None:
            return len(text)
        cut = len(text)
        for start in range(max(0, len(text) - self._longest + 1), len(text)):
            end = text[start:]
            at = bisect_left(known, end)
            # The secret's own form may come first; a longer one with this beginning follows
            # directly.
            if any(form != end and form.startswith(end) for form in known[at : at + 2]):
                cut = start
                break
        for match in pattern.finditer(text):
            if match.start() < cut < match.end():
                return match.start()
        return cut

    def value(self, value: Any, limit: int | None = None) -> Any:
        """``value`` as plain data (JSON types) without secrets, including nested values.

        Other types, and values deeper than 8 levels, become their ``repr``.
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
    """A text in pieces, without secrets that are split over two of them.

    Text that may be the beginning of a secret is not given out until more text decides.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._pending = ""

    def take(self, piece: str) -> str:
        """The text that can be shown after ``piece``."""
        text = self._pending + piece
        cut = self._redactor.open_from(text)
        self._pending = text[cut:]
        return self._redactor.text(text[:cut])

    def rest(self) -> str:
        """The text that was not given out yet; no more text may follow."""
        pending, self._pending = self._pending, ""
        return self._redactor.text(pending)


def _repr(value: Any) -> str:
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}"
    try:
        return repr(value)
    except Exception as error:  # noqa: BLE001
        # supervision boundary: a log line must not fail because of its subject
        return f"<{type(value).__name__} without repr: {type(error).__name__}>"


def _forms(secret: str) -> set[str]:
    """The common written forms of a secret."""
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
