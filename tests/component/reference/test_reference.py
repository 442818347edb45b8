"""The pages of ``docs/reference`` are what the program says of itself."""

from __future__ import annotations

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
