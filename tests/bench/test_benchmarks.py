"""Every benchmark runs in its smallest size and finds numbers; how good they are is not asked here."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import NAMES, run_one
from benchmarks.figure import Figure, percentile
from benchmarks.recorded import PAGE, recorded, with_figures
from benchmarks.table import Outcome, as_json, table


@pytest.mark.timeout(120)
@pytest.mark.leaks("threads", "children", reason="a whole daemon ran, and its logging")
@pytest.mark.parametrize("name", NAMES)
async def test_it_runs(name: str, tmp_path: Path) -> None:
    outcome = await run_one(name, tiny=True, folder=tmp_path)
    assert not outcome.error
    assert outcome.figures
    assert all(math.isfinite(figure.value) for figure in outcome.figures)


def test_a_missed_target_is_marked_and_told() -> None:
    slow = Figure("slow", 3.0, "ms", 2.0, raw=1.5, raw_is="bare")
    few = Figure("few", 10.0, "/s", 9.0, at_most=False)
    outcome = Outcome("example", (0.1, 0.1), 1.0, (slow, few, Figure("free", 1.0, "ms")))
    lines = table([outcome], {("example", "slow"): 4.25}).splitlines()
    assert "MISS" in lines[2]
    assert "2.00" in lines[2]
    assert "4.25" in lines[2], "the recorded run stands beside it"
    assert "ok" in lines[3]
    (found,) = as_json([outcome], {})["benchmarks"]
    assert [figure["is_met"] for figure in found["figures"]] == [False, True, None]


def test_percentiles_are_values_that_occurred() -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], 0.5) == 2.0
    assert percentile([4.0, 1.0, 3.0, 2.0], 0.99) == 4.0
    assert math.isnan(percentile([], 0.5))


def test_an_unknown_name_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "nothing"], capture_output=True, check=False
    )
    assert done.returncode == 2
    assert b"there is no benchmark nothing" in done.stderr


def test_the_page_shows_the_recorded_run() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_figures(page, recorded()) == page, "run make bench-record; write no figure by hand"
    assert "Where the time of one turn goes" in page
