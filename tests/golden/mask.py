"""What differs from run to run, taken out of a recorded text: ids, times, ports, folders."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

MOST_ITEMS: Final = 3
"""So many items of a list are recorded."""
_TIMES: Final = ("_at", "_ms", "_s", "_until", "at", "since", "seconds", "time")
"""Ends of the names of JSON fields whose numbers are times."""
_TEXTS: Final = tuple(
    (re.compile(pattern), put)
    for pattern, put in (
        (r"\b([a-z]{1,8})_(?:[0-9a-hjkmnp-tv-z]{26})\b", r"<\1>"),
        (r"\b(?:[0-9a-f]{12}|[0-9a-f]{16}|[0-9a-f]{32})\b", "<hex>"),
        (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?", "<time>"),
        (r"\b\d\d:\d\d:\d\d\b", "<time>"),
        (r"\b18\d{11}\b", "<ms>"),
        (r"\b\d+(?:[.,]\d+)? ?(?:ms|s|min)\b", "<duration>"),
        (r"\bpid +\d+", "pid  <pid>"),
        (r"(?<=\S)  +", "  "),  # widths of columns follow what is masked in them
    )
)


def mask(text: str, replaced: Mapping[str, str]) -> str:
    """``text`` without what varies; ``replaced`` maps further texts of this run to their masks."""
    for varying, put in replaced.items():
        text = text.replace(varying, put)
    for pattern, put in _TEXTS:
        text = pattern.sub(put, text)
    return "\n".join(line.rstrip() for line in text.splitlines())


def mask_document(value: Any, name: str = "") -> Any:
    """A JSON document without times, which are known by their names, and with short lists."""
    if isinstance(value, dict):
        return {key: mask_document(each, key) for key, each in value.items()}
    if isinstance(value, list):
        more = [f"<{len(value) - MOST_ITEMS} more>"] if len(value) > MOST_ITEMS else []
        return [mask_document(each, name) for each in value[:MOST_ITEMS]] + more
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"<{name}>" if is_number and (name.endswith(_TIMES) or name == "pid") else value
