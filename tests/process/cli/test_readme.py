"""The README's first five minutes, done as they stand there."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentsup.engines.scripted.engine import NO_MODEL
from tests.process.cli.process_cli import Cli, Shell, until
from tests.support.ports import free_port
from tests.support.source_tree import ROOT

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
LINES = [
    re.sub(r"\s+#.*", "", line).strip()
    for kind, block in BLOCKS
    if not kind
    for line in block.splitlines()
]
INLINE = re.findall(r"(?<!`)`([^`\n]+)`(?!`)", re.sub(r"```.*?```", "", TEXT, flags=re.DOTALL))
ELSEWHERE = {
    "agentsup setup": "tests/process/cli/test_setup.py",
    ".venv/bin/agentsup --home .home setup": "the same",
    "agentsup up": "here",
    "agentsup demo": "tests/process/cli/test_demo.py",
    "agentsup service install": "tests/process/cli/test_service.py",
    "agentsup chat writer": "here, with something to say",
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """What ``make run`` makes of an empty folder, but for the chat."""
    made = Cli(tmp_path_factory.mktemp("readme") / ".home", free_port())
    yield made
    made.end_all()


def begun(home: Cli) -> Cli:
    home.good("up", "--no-chat", "--port", str(home.port))
    return home


def test_what_is_said_at_the_prompt_has_real_answers(home: Cli) -> None:
    said = [line.removeprefix("› ") for line in LINES if line.startswith("›")]
    assert said
    begun(home)
    # The answer to its question is typed, as the README says; a command is sent at once.
    heard = home.good("chat", stdin="\n".join([*said, "1", ""]))
    assert NO_MODEL.partition(" Try ")[0] not in heard
    assert heard.count("main: ") >= len(said), heard
    assert "you said" not in home.good("chat", "writer", stdin="a haiku\n")


def test_each_offer_of_the_offline_engine_works(home: Cli) -> None:
    begun(home)
    heard = home.good("chat", stdin="What can you do?\n")
    offers = re.findall(r"`([^`]+)`", heard)
    assert {"/help", "/stop", "choose", "ask writer for a haiku"} <= set(offers)
    for offer in offers:
        if offer.startswith("agentsup") or offer == "/task":
            continue
        answer = home.good("chat", stdin=f"{offer}\n")
        # A line with a star is the terminal's own, such as that no model is configured.
        said = "\n".join(line for line in answer.splitlines() if not line.startswith("* "))
        assert said.strip(), offer
        for useless in ("none fits that", "offline, without", "no command", " setup`"):
            assert useless not in said, (offer, answer)
        if offer == "choose":
            home.good("chat", stdin="1\n")


def test_commands_of_the_chat_that_it_names_answer(home: Cli) -> None:
    begun(home)
    named = [code for code in INLINE if re.match(r"/[a-z_]+( |$)", code)]
    assert {"/help", "/agents", "/stop_all"} <= set(named)
    heard = home.good("chat", stdin="\n".join([*named, ""]))
    assert "unknown" not in heard.casefold()
    assert "unbekannt" not in heard.casefold()


def test_an_entry_that_is_saved_is_an_agent_at_once(home: Cli) -> None:
    begun(home)
    (entry,) = (json.loads(block) for kind, block in BLOCKS if kind == "json")
    path = home.home / "agents.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "agents": [*document["agents"], entry]}))
    until(
        "it runs",
        lambda: re.search(rf"^{entry['name']} +running", home.good("agents", "list"), re.MULTILINE),
    )
    own = home.good("chat", entry["name"], stdin="a haiku\n")
    assert "nothing lost tonight" in own, "it has no script of its own"
    asked = home.good("chat", stdin=f"ask {entry['name']} for a haiku\n")
    assert f"{entry['name']} says:" in asked
    assert "nothing lost tonight" in asked


def test_every_command_line_can_be_run(home: Cli, tmp_path: Path) -> None:
    begun(home)
    shell = Shell(tmp_path, AGENTSUP_HOME=str(home.home))
    before = (home.written() or {})["pid"]
    for line in LINES:
        first = shlex.split(line, comments=True)[:1]
        if line.startswith("›") or line in ELSEWHERE or first in ([], ["git"], ["make"]):
            continue  # `make run` is tried in a fresh clone by live tests
        shell.type(line)
    # It was killed by one of them, and comes back by itself.
    until(
        "the next daemon is ready",
        lambda: (home.written() or {}).get("pid") != before and home.is_ready(),
    )
    for code in INLINE:
        if code.startswith("agentsup ") and code not in ELSEWHERE:
            shell.type(code)
