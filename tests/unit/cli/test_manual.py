"""``docs``: each page can be read, and each page that a message names is there."""

from __future__ import annotations

import re

import pytest

from agentsup.cli.main import main
from tests.support.source_tree import PACKAGE, ROOT


def said(capsys: pytest.CaptureFixture[str], *line: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["docs", *line])
    assert ended.value.code in (0, None), line
    return capsys.readouterr().out


def test_a_page_is_printed_as_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    listed = said(capsys)
    assert re.search(r"^index +agentsup$", listed, re.MULTILINE)
    assert re.search(r"^examples/coder +A coder", listed, re.MULTILINE)
    assert "decisions" not in listed
    text = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    for name in ("models", "docs/models.md"):
        assert said(capsys, name) == text


def test_a_page_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("nosuch", "../README", "decisions/0001-test-loops-are-ours"):
        with pytest.raises(SystemExit) as ended:
            main(["docs", name])
        assert ended.value.code == 2
        assert "`agentsup docs` lists them" in capsys.readouterr().err


def test_pages_that_messages_name_are_there(capsys: pytest.CaptureFixture[str]) -> None:
    texts = (*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.toml"), *PACKAGE.rglob("*.js"))
    named = {
        page
        for path in texts
        for page in re.findall(r"`agentsup docs (\w+)`", path.read_text(encoding="utf-8"))
    }
    assert {"models", "phone", "recovery"} & named
    for page in named:
        assert said(capsys, page)
