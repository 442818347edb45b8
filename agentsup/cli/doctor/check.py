"""The result of a check of the doctor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

OK: Final = "ok"
WARN: Final = "warn"
FAIL: Final = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report: what was checked, its result, and what to do about it."""

    name: str
    result: str
    text: str
    advice: str = ""
