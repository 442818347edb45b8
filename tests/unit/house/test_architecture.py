"""Each path that ``docs/architecture.md`` names exists."""

from __future__ import annotations

import re

from tests.support.source_tree import PACKAGE, ROOT


def test_every_named_path_exists() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w-]+/[\w./-]+)`", text))
    assert named, "no path was found: the pattern is wrong"
    gone = {path for path in named if not any((base / path).exists() for base in (PACKAGE, ROOT))}
    assert not gone, "docs/architecture.md names what there is no more"
