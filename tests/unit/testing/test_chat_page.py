"""The chat page of the fake: complete, under a strict policy, and never markup from a message."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import aiohttp
import pytest

from agentsup.fakes.telegram import FakeTelegram
from agentsup.fakes.telegram.server import PAGE
from tests.support.bound import BOUND_S

ROOT = Path(__file__).parents[3]
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


async def test_the_fake_serves_the_page_and_all_it_names(tmp_path: Path) -> None:
    async with FakeTelegram(tmp_path) as fake, aiohttp.ClientSession() as http:
        async with http.get(f"{fake.url}/") as response:
            assert response.status == 200
            index = await response.text()
        named = re.findall(r'(?:src|href)="(/[^"]+)"', index)
        assert "/page/app.js" in named
        imported = {
            f"/page/{name}"
            for script in SCRIPTS
            for name in re.findall(r'from "\./([\w.]+)"', script.read_text())
        }
        for path in {*named, *imported}:
            async with http.get(fake.url + path) as response:
                assert response.status == 200, path
                kind = response.headers["Content-Type"]
            if path.endswith(".js"):
                assert kind.partition(";")[0] in {"text/javascript", "application/javascript"}


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


@NEEDS_NODE
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_the_scripts_can_be_read(script: Path) -> None:
    assert NODE is not None
    done = subprocess.run(
        [NODE, "--check", "--input-type=module", "-"],
        input=script.read_text(),
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr


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
def test_code_names_its_language_and_ends_its_line() -> None:
    text = "a\nx < y\nb"
    found = shown(text, [entity("pre", 2, 5, language="python")])
    assert found == "[DIV:a\n[PRE:[SPAN:python][CODE:x < y]]b]"


@NEEDS_NODE
def test_only_harmless_links_can_be_followed() -> None:
    assert shown("go", [entity("text_link", 0, 2, url="javascript:alert(1)")]) == "[DIV:[SPAN:go]]"
    assert shown("go", [entity("text_link", 0, 2, url="https://example.org/")]) == (
        "[DIV:[A https://example.org/:go]]"
    )


def test_the_wheel_holds_the_page() -> None:
    wheel = pytest.importorskip("hatchling.builders.wheel")
    builder = wheel.WheelBuilder(str(ROOT))
    files = {one.distribution_path for one in builder.recurse_included_files()}
    for path in PAGE.iterdir():
        assert f"agentsup/fakes/telegram/page/{path.name}" in files
