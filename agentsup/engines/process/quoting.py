"""Makes the error output of a program fit to be shown. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

_MAX_CHARS = 2000
_MIN_SECRET = 8
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def quote(raw: bytes, conceal: Callable[[str], str]) -> str:
    """Return the end of ``raw`` as text, without escapes, control characters and secrets."""
    text = _ESCAPES.sub("", raw.decode("utf-8", "replace").replace("\r\n", "\n"))
    text = conceal(_CONTROLS.sub("", text).strip())
    return text if len(text) <= _MAX_CHARS else "…" + text[-_MAX_CHARS:]


def concealer(
    secrets: Iterable[str], further: Callable[[str], str] | None = None
) -> Callable[[str], str]:
    """Return a function that masks ``secrets`` in a text, and then what ``further`` masks."""
    known = sorted({each for each in secrets if len(each) >= _MIN_SECRET}, key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, known))) if known else None

    def conceal(text: str) -> str:
        if pattern is not None:
            text = pattern.sub("***", text)
        return further(text) if further is not None else text

    return conceal
