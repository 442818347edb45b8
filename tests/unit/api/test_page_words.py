"""What the web page says: each text of its files in each language, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import agentsup.api
from agentsup.catalogue import ENGLISH, load, page_words

PAGE = Path(agentsup.api.__file__).parent / "page"
OTHERS = [code for code in load().languages if code != ENGLISH]
# Words that come from the daemon, or stand in a table of the page, and are looked up by themselves.
LOOKED_UP = {
    *("running", "starting", "stopping", "stopped", "degraded", "backoff", "failed"),
    *("critical", "high", "normal", "low"),
    *("Chat", "Agents", "Work", "Questions", "Failed messages", "Statistics", "Log", "Setup"),
}


def texts_of(source: str) -> set[str]:
    """The texts of t``...``; what is put in is {}. Templates may hold others."""
    found = set()
    for begun in re.finditer(r"(?<![\w$])t`", source):
        at, text = begun.end(), ""
        while source[at] != "`":
            if source.startswith("${", at):
                depth, at = 1, at + 2
                while depth:
                    depth += {"{": 1, "}": -1}.get(source[at], 0)
                    at += 1
                text += "{}"
            else:
                text += source[at]
                at += 1
        found.add(text)
    return found


def said_by_the_page() -> set[str]:
    found = set(LOOKED_UP)
    for file in PAGE.glob("*.js"):
        lines = file.read_text(encoding="utf-8").splitlines()
        found |= texts_of("\n".join(line for line in lines if not line.lstrip().startswith("/")))
    body = (PAGE / "index.html").read_text(encoding="utf-8").partition("<body>")[2]
    static = re.findall(r">([^<]*[A-Za-z][^<]*)<", body)
    static += re.findall(r'aria-label="([^"]+)"', body)
    return found | {
        text for text in static if text not in ("agentsup", "agentsup link", "api.token")
    }


def test_texts_are_found_in_a_source() -> None:
    assert texts_of("f(t`a ${t`b`} ${c({ d: 1 })}`, t(['x']), not`y`)") == {"a {} {}", "b"}


@pytest.mark.parametrize("code", OTHERS)
def test_the_page_says_everything_in_every_language(code: str) -> None:
    language, said = page_words(code)
    assert language == code
    wanted = said_by_the_page()
    assert set(said) >= wanted, sorted(wanted - set(said))
    assert set(said) == wanted, sorted(set(said) - wanted)
    for english, text in said.items():
        assert text.strip()
        assert text.count("{}") == english.count("{}"), english
        assert english.startswith(" ") == text.startswith(" ")
        assert english.endswith(" ") == text.endswith(" ")
