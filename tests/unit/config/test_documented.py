"""What README and docs show of config.toml and agents.json is accepted as it stands there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentsup.config import parse_agents, parse_settings

ROOT = Path(__file__).parents[3]
_BLOCK = re.compile(r"^( *)```(toml|json)\n(.*?)^\1```", re.DOTALL | re.MULTILINE)


def blocks(kind: str) -> Iterator[tuple[str, str]]:
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))):
        for indent, written, text in _BLOCK.findall(path.read_text(encoding="utf-8")):
            if written == kind:
                lines = [line.removeprefix(indent) for line in text.splitlines()]
                yield path.name, "\n".join(lines)


def test_the_shown_settings_are_accepted() -> None:
    shown = list(blocks("toml"))
    assert len(shown) > 5
    for name, text in shown:
        parse_settings(text.encode(), path=name)


@pytest.mark.parametrize("name, text", [each for each in blocks("json") if '"name"' in each[1]])
def test_the_shown_entries_are_accepted(name: str, text: str) -> None:
    document = json.loads(text)
    entries = document if isinstance(document, list) else document.get("agents", [document])
    parse_agents(json.dumps(entries).encode(), path=name)
