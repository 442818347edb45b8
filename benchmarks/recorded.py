"""The last recorded run: kept in the repository and shown in ``docs/performance.md``.

A run with ``--record`` replaces the figures of the benchmarks that ran; the others stay.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.figure import number

RECORDED = Path(__file__).parent / "recorded.json"
PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
BEGIN, END = "<!-- figures: written by make bench-record -->", "<!-- end of figures -->"
_PARTS = "of it: "
_WIDTH = 50


def recorded() -> dict[str, Any]:
    """The recorded run, in the form of ``benchmarks.table.as_json``."""
    if not RECORDED.exists():
        return {"machine": {}, "benchmarks": []}
    found: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return found


def values(run: Mapping[str, Any]) -> dict[tuple[str, str], float]:
    """The values of a run by benchmark and figure."""
    return {
        (each["name"], figure["name"]): figure["value"]
        for each in run["benchmarks"]
        for figure in each["figures"]
    }


def record(run: Mapping[str, Any], order: Sequence[str]) -> None:
    """Record a run, and write the figures of all recorded ones into the page."""
    found = {each["name"]: each for each in recorded()["benchmarks"]}
    found |= {each["name"]: each for each in run["benchmarks"]}
    kept = [found[name] for name in order if name in found]
    merged = {"machine": run["machine"], "benchmarks": kept}
    text = json.dumps(merged, indent=1, ensure_ascii=False)
    RECORDED.write_text(text + "\n", encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_figures(page, merged), encoding="utf-8")


def with_figures(page: str, run: Mapping[str, Any]) -> str:
    """The page with the figures of ``run`` in their place."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n\n{markdown(run)}\n\n{END}{tail}"


def markdown(run: Mapping[str, Any]) -> str:
    """Tables of all figures, and the picture of where the time of a turn goes."""
    machine = run["machine"]
    names = ("python", "sqlite", "processors", "system")
    facts = [f"{name}: {machine[name]}" for name in names if name in machine]
    blocks = [f"Measured on: {', '.join(facts)}.", picture(run)]
    for each in run["benchmarks"]:
        lines = [
            f"### {each['name']}",
            "",
            "| figure | measured | limit | raw cost | ratio | raw is, or note |",
            "|---|--:|--:|--:|--:|---|",
        ]
        lines += [_row(figure) for figure in each["figures"]]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def picture(run: Mapping[str, Any]) -> str:
    """Bars for the parts of a turn, as the benchmark ``turns`` has timed them."""
    parts = [
        (figure["name"].removeprefix(_PARTS), figure["value"])
        for each in run["benchmarks"]
        for figure in each["figures"]
        if each["name"] == "turns" and figure["name"].startswith(_PARTS)
    ]
    if not parts:
        return ""
    most, width = max(value for _, value in parts), max(len(name) for name, _ in parts)
    bars = [
        f"{name:<{width}}  {'█' * max(1, round(value / most * _WIDTH))} {value:.2f} ms"
        for name, value in parts
    ]
    return "\n".join(["Where the time of one turn goes:", "", "```", *bars, "```"])


def _row(figure: Mapping[str, Any]) -> str:
    sign = "≤" if figure["at_most"] else "≥"
    limit = "" if figure["limit"] is None else f"{sign} {figure['limit']:g}"
    met = " **missed**" if figure["is_met"] is False else ""
    cells = (
        figure["name"].replace("|", "/"),
        f"{number(figure['value'])} {figure['unit']}".rstrip(),
        limit + met,
        "" if figure["raw"] is None else number(figure["raw"]),
        "" if figure["ratio"] is None else f"{figure['ratio']:.2f}",
        " · ".join(filter(None, (figure["raw_is"], figure["note"]))).replace("|", "/"),
    )
    return f"| {' | '.join(cells)} |"
