"""The values of a run: a figure, its target, its raw cost."""

from __future__ import annotations

import math
import tempfile
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
"""Where results are written and the benchmarks work: a real disk, not a memory file system."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number. ``limit`` is what is owed, ``at_most`` says on which side of it."""

    name: str
    value: float
    unit: str
    limit: float | None = None
    at_most: bool = True
    raw: float | None = None
    """The cost of the same work without agentsup, in the same unit and run."""
    raw_is: str = ""
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """How often the raw cost fits into the figure."""
        return self.value / self.raw if self.raw else None

    @property
    def is_met(self) -> bool | None:
        """Whether the target is met; None where nothing is owed."""
        if self.limit is None:
            return None
        return self.value <= self.limit if self.at_most else self.value >= self.limit


@dataclass(frozen=True, slots=True)
class BenchContext:
    """What a benchmark stands on: an empty folder, and whether a tiny size is enough."""

    folder: Path
    tiny: bool = False

    def size(self, full: int, tiny: int) -> int:
        """How often to do something."""
        return tiny if self.tiny else full

    @asynccontextmanager
    async def fresh(self, name: str) -> AsyncIterator[Path]:
        """An empty folder, removed at the end."""
        with tempfile.TemporaryDirectory(
            prefix=f"{name}-", dir=self.folder, ignore_cleanup_errors=True
        ) as path:
            yield Path(path)


def percentile(values: Iterable[float], share: float) -> float:
    """The smallest value that at least ``share`` of the values do not exceed; NaN for none."""
    ordered = sorted(values)
    if not ordered:
        return math.nan
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)]


def median(values: Iterable[float]) -> float:
    """The middle value."""
    return percentile(values, 0.5)


def number(value: float) -> str:
    """``value`` with three significant digits, or whole with separators."""
    if abs(value) >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.3g}"
