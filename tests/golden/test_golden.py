"""What people and programs are answered, compared with what was recorded.

After a wanted change: ``python -m tests.golden``, and read the difference of the text files.
"""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from tests.golden.surfaces import FOLDER, TERMINAL, record


@pytest.mark.timeout(240)  # a hundred commands, one after the other
async def test_answers_are_as_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in TERMINAL.items():
        monkeypatch.setenv(name, value)
    changed: list[str] = []
    for name, text in (await record(tmp_path / "home")).items():
        recorded = (FOLDER / name).read_text(encoding="utf-8")
        changed += difflib.unified_diff(
            recorded.splitlines(), text.splitlines(), f"recorded {name}", f"now {name}", lineterm=""
        )
    assert not changed, "\n".join([*changed, "if this is wanted: python -m tests.golden"])
