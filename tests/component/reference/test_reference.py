"""The pages of ``docs/reference`` are what the program says of itself."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase

import pytest

from tests.component.conftest import Open
from tests.component.reference.pages import FOLDER, pages
from tests.support.virtual_daemon import agent

pytestmark = pytest.mark.virtual


async def test_the_reference_is_up_to_date(household: Open) -> None:
    house = await household(agent("ann"))
    made = pages(house.daemon.calls.tools.all())
    assert {path.name for path in FOLDER.glob("*.md")} == set(made)
    stale = [name for name, text in made.items() if (FOLDER / name).read_text() != text]
    assert stale == [], "run: python -m tests.component.reference.pages"


def test_the_line_of_tools_to_paste_is_the_default_set_with_the_dangerous_three() -> None:
    rows = [row.split(" | ") for row in (FOLDER / "tools.md").read_text().splitlines()]
    tools = {row[0].strip("| `"): row[2] for row in rows if len(row) > 3 and "`" in row[0]}
    text = (FOLDER.parent / "permissions.md").read_text()
    named = json.loads(text.partition('"tools": ')[2].partition("\n```")[0])
    covered = {tool for tool in tools if any(fnmatchcase(tool, each) for each in named)}
    default = {tool for tool, when in tools.items() if when == "yes"}
    assert covered - {tool for tool, when in tools.items() if when == "always"} - {
        # Named by task_*, and only of use to who makes tasks, as the others are.
        "task_answer",
        "task_logs",
        "task_result",
    } == default | {"exec", "web_fetch", "fs_delete"}
