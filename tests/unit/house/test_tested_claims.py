"""Each test that ``docs/tested_claims.md`` names exists."""

from __future__ import annotations

import re

from tests.support.source_tree import ROOT, text_of

CLAIMS = ROOT / "docs" / "tested_claims.md"


def _named() -> tuple[set[str], set[str]]:
    """Return the files and the test functions that stand between backticks; "…" stands for any text."""
    quoted = " ".join(re.findall(r"`([^`\n]+)`", CLAIMS.read_text(encoding="utf-8")))
    files = set(re.findall(r"[\w/]*test_\w+\.py", quoted))
    functions = set(re.findall(r"(?<![\w./])(?:::)?((?:…|test_)\w+…?)(?![\w.])", quoted))
    return files, functions


def test_every_named_test_exists() -> None:
    files, functions = _named()
    here = sorted((ROOT / "tests").rglob("test_*.py"))
    paths = [str(path.relative_to(ROOT)) for path in here]
    gone = {name for name in files if not any(f"/{path}".endswith(f"/{name}") for path in paths)}
    text = "\n".join(map(text_of, here))
    defined = "\n".join(re.findall(r"def (test_\w+)", text))
    for name in functions:
        pattern = re.escape(name).replace("…", r"\w*")
        if not re.search(f"^{pattern}$", defined, re.MULTILINE) and f"{name}.py" not in text:
            gone.add(name)
    assert not gone, f"docs/tested_claims.md names what there is no more: {sorted(gone)}"
