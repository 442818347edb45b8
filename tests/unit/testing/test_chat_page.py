"""The chat page of the fake: complete, under a strict policy, and never markup from a message."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from agentsup.fakes.telegram.server import PAGE
from tests.support.bound import BOUND_S

NODE = shutil.which("node")
NEEDS_NODE = pytest.mark.skipif(NODE is None, reason="node is not installed")
SCRIPTS = sorted(PAGE.glob("*.js"))


def node(program: str) -> str:
    assert NODE is not None
    done = subprocess.run(
        [NODE, "--input-type=module", "--eval", program],
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_policy_allows_only_what_the_fake_serves() -> None:
    index = (PAGE / "index.html").read_text()
    found = re.search(r'Content-Security-Policy" content="([^"]+)"', index)
    assert found is not None
    policy = dict(part.strip().partition(" ")[::2] for part in found[1].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == "'self'"
    assert policy["connect-src"] == "'self'"
    assert "unsafe" not in found[1]
    assert not re.search(r"<script(?![^>]* src=)", index), "an inline script"
    assert not re.search(r"<[^>]+\s(?:on\w+|style)=", index), "an inline handler or style"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_no_script_makes_markup_of_text(script: Path) -> None:
    text = script.read_text()
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert word not in text
    assert not re.search(r'"https?://[^"]', text), "another place than the fake"


# As much of a document as the entities need: what is appended, and a view of it as brackets.
DOCUMENT = """
class Node {
  constructor(name) { this.tagName = name.toUpperCase(); this.parts = []; this.href = ""; }
  set textContent(text) { this.parts = [String(text)]; }
  append(...parts) { this.parts.push(...parts); }
  addEventListener() {}
  show() {
    const inside = this.parts.map((part) => part instanceof Node ? part.show() : part).join("");
    return `[${this.tagName}${this.href ? " " + this.href : ""}:${inside}]`;
  }
}
globalThis.document = { createElement: (name) => new Node(name) };
"""


def shown(text: str, entities: list[dict[str, object]]) -> str:
    module = (PAGE / "entities.js").read_text()
    call = f"console.log(words({json.dumps(text)}, {json.dumps(entities)}).show());"
    return node(f"{DOCUMENT}\n{module}\n{call}").rstrip("\n")


def entity(kind: str, offset: int, length: int, **more: str) -> dict[str, object]:
    return {"type": kind, "offset": offset, "length": length, **more}


@NEEDS_NODE
def test_entities_become_elements_and_text_stays_text() -> None:
    text = "😀 <b>x</b> y"
    assert shown(text, [entity("bold", 0, 2), entity("italic", 3, 8)]) == (
        "[DIV:[B:😀] [I:<b>x</b>] y]"
    )


@NEEDS_NODE
def test_entities_nest_and_reach_over_edges_and_ends() -> None:
    nested = [entity("italic", 2, 2), entity("bold", 0, 6)]
    assert shown("abcdef", nested) == "[DIV:[B:ab[I:cd]ef]]"
    crossing = [entity("bold", 0, 4), entity("italic", 2, 4)]
    assert shown("abcdef", crossing) == "[DIV:[B:ab[I:cd]][I:ef]]"
    assert shown("abc", [entity("code", 1, 90)]) == "[DIV:a[CODE:bc]]"


@NEEDS_NODE
def test_only_harmless_links_can_be_followed() -> None:
    assert shown("go", [entity("text_link", 0, 2, url="javascript:alert(1)")]) == "[DIV:[SPAN:go]]"
    assert shown("go", [entity("text_link", 0, 2, url="https://example.org/")]) == (
        "[DIV:[A https://example.org/:go]]"
    )
