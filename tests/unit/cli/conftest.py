"""A home as ``agentsup init`` makes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentsup.cli.commands.home_files import create_home
from agentsup.config import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    create_home(made)
    return made
