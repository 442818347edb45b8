"""The table and the JSON of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.figure import Figure, number

_HEADS = ("figure", "value", "recorded", "limit", "", "raw", "ratio", "raw is / note")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one benchmark found. ``calibration_us``: awaiting an empty coroutine before and after."""

    name: str
    calibration_us: tuple[float, float]
    elapsed_s: float
    figures: tuple[Figure, ...] = ()
    error: str = ""


def table(outcomes: Sequence[Outcome], earlier: Mapping[tuple[str, str], float]) -> str:
    """The figures as aligned text, each beside its value in the recorded run (``earlier``)."""
    rows: list[tuple[str, ...]] = [_HEADS]
    for outcome in outcomes:
        before, after = outcome.calibration_us
        rows.append((f"[{outcome.name}] {outcome.elapsed_s:.0f} s, {before:.2f}/{after:.2f} µs",))
        rows += [
            _row(figure, earlier.get((outcome.name, figure.name))) for figure in outcome.figures
        ]
        if outcome.error:
            rows.append((f"  failed: {outcome.error}",))
    full = [row for row in rows if len(row) == len(_HEADS)]
    widths = [max(len(row[column]) for row in full) for column in range(len(_HEADS))]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if column in (1, 2, 3, 5, 6) else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=False))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _row(figure: Figure, before: float | None) -> tuple[str, ...]:
    sign = "≤" if figure.at_most else "≥"
    mark = {None: "", True: "ok", False: "MISS"}[figure.is_met]
    return (
        f"  {figure.name}",
        f"{number(figure.value)} {figure.unit}".rstrip(),
        "" if before is None else number(before),
        "" if figure.limit is None else f"{sign} {figure.limit:g}",
        mark,
        "" if figure.raw is None else number(figure.raw),
        "" if figure.ratio is None else f"{figure.ratio:.2f}",
        " · ".join(filter(None, (figure.raw_is, figure.note))),
    )


def as_json(outcomes: Sequence[Outcome], machine: dict[str, Any]) -> dict[str, Any]:
    """The whole run as one document."""
    return {
        "machine": machine,
        "benchmarks": [
            asdict(outcome)
            | {
                "figures": [
                    asdict(f) | {"ratio": f.ratio, "is_met": f.is_met} for f in outcome.figures
                ]
            }
            for outcome in outcomes
        ],
    }


def write(path: Path, document: dict[str, Any]) -> None:
    """Write ``document`` to ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
