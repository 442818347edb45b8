"""What README, docs and the compose file show of command lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.source_tree import ROOT

PAGES = (
    *(ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "compose.yaml"),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "examples").glob("*.md")),
)
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
HAS_PLACES = re.compile(r"[…\[\]<>|·]|\b[A-Z]{2,}\b")
"""Something that the reader has to fill in."""


def where(path: Path) -> str:
    return str(path.relative_to(ROOT))


def shell_lines(text: str) -> Iterator[str]:
    """Lines of blocks that a person would type, and those of comments in compose.yaml."""
    for indent, language, block in BLOCK.findall(text):
        if language in ("", "sh", "bash", "console"):
            lines = (line.removeprefix(indent) for line in block.splitlines())
            yield from "\n".join(lines).replace("\\\n", " ").splitlines()
    yield from re.findall(r"^# \w+: +(docker .+)$", text, re.MULTILINE)


def codes(text: str) -> list[str]:
    """Codes within sentences."""
    return [str(code) for code in INLINE.findall(BLOCK.sub("", text))]
