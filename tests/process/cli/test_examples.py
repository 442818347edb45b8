"""The examples of the documentation, used as their pages tell: set up with a model, and at work."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.process.cli.process_cli import Cli, until
from tests.support.model_server import Asked, Call, ModelServer, Reply, without_time
from tests.support.ports import free_port
from tests.support.source_tree import ROOT

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

EXAMPLES = ROOT / "docs" / "examples"
KEY = "sk-a-key-of-nobody-4711"
NAMES = ("cook", "papers", "web", "critic", "writer", "coder", "reviewer", "reporter")
Home = Callable[[str], Cli]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """``home("coder")``: a copy of that example."""
    made: list[Cli] = []

    def copied(name: str) -> Cli:
        shutil.copytree(EXAMPLES / name, tmp_path / name)
        made.append(Cli(tmp_path / name, free_port()))
        return made[-1]

    yield copied
    for cli in made:
        for daemon in cli.daemons:
            daemon.kill()
            daemon.wait()
        cli.ends.close()


async def begin(cli: Cli, server: ModelServer, key: Path) -> None:
    """Give the home a model by ``setup``, and start its daemon."""
    key.write_text(KEY)
    words = ("--provider", "compatible", "--base-url", server.base_url, "--model", "good")
    await run(cli, "setup", *words, "--no-test", "--key-file", str(key))
    await asyncio.to_thread(cli.daemon)


async def run(cli: Cli, *words: str) -> str:
    return await asyncio.to_thread(cli.good, *words)


def who(asked: Asked) -> str:
    """Whose request it is, by its instructions; main where it names none of the others."""
    head = str(asked.messages[0]["content"])
    found = re.search(r"You are (\w+)", head)
    return found[1] if found and found[1] in NAMES else "main"


def said(asked: Asked) -> str:
    return without_time(str(asked.messages[-1]["content"]))


def has_result(asked: Asked) -> bool:
    return bool(asked.messages[-1]["role"] == "tool")


def tools_of(server: ModelServer, name: str) -> set[str]:
    """What an agent was offered."""
    asked = next(each for each in server.asked if who(each) == name)
    return {tool["function"]["name"] for tool in asked.body.get("tools", [])}


@pytest.mark.parametrize(
    "name", sorted(path.parent.name for path in EXAMPLES.glob("*/agents.json"))
)
def test_nothing_is_wrong_with_an_example_and_its_page_names_its_files(
    name: str, home: Home
) -> None:
    cli = home(name)
    assert cli.good("agents", "validate") == f"{cli.home}/agents.json and config.toml are right.\n"
    page = (EXAMPLES / f"{name}.md").read_text(encoding="utf-8")
    for path in (EXAMPLES / name).rglob("*"):
        assert path.is_dir() or f"({path.relative_to(EXAMPLES)})" in page, path
    roles = {path.parent.name for path in (EXAMPLES / name).glob("roles/*/AGENT.md")}
    entries = json.loads((cli.home / "agents.json").read_text())["agents"]
    assert roles == {each["role"] for each in entries if "role" in each}


async def test_a_household(home: Home, tmp_path: Path) -> None:
    def model(asked: Asked) -> Reply:
        if who(asked) == "main":
            if has_result(asked):
                return Reply(f"The cook says: {said(asked)}")
            return Reply(calls=(Call("ask_agent", {"to": "cook", "message": "dinner"}),))
        if has_result(asked):
            return Reply("soup; leeks are on the list")
        return Reply(calls=(Call("fs_write", {"path": "shopping.md", "content": "- [ ] leeks"}),))

    cli = home("household")
    async with ModelServer(model, models=["good"], key=KEY) as server:
        await begin(cli, server, tmp_path / "key")
        answer = await run(cli, "send", "main", "What do we eat?")
        assert answer.strip() == "The cook says: soup; leeks are on the list"
        assert server.violations == []
        head = next(str(each.messages) for each in server.asked if who(each) == "cook")
        # Its role, its skill, and what everyone knows.
        for part in ("You plan meals for a family", "Tick off", "peanuts"):
            assert part in head
        assert {"fs_write", "memory_save"} <= tools_of(server, "cook")
        assert not {"exec", "web_fetch", "ask_agent"} & tools_of(server, "cook")
    (listed,) = cli.home.glob("agents/cook/workspace/shopping.md")
    assert listed.read_text() == "- [ ] leeks"


async def test_a_research_team(home: Home, tmp_path: Path) -> None:
    def model(asked: Asked) -> Reply:
        name = who(asked)
        if name == "main":
            before = Counter(str(each.get("tool_calls")) for each in asked.messages)
            if any("writer" in each for each in before):
                return Reply(f"Report: {said(asked)}")
            if any("scouts" in each for each in before):
                return Reply(calls=(Call("ask_agent", {"to": "writer", "message": said(asked)}),))
            return Reply(calls=(Call("dispatch_team", {"team": "scouts", "prompt": "coffee"}),))
        if name == "writer" and not has_result(asked):
            return Reply(calls=(Call("ask_agent", {"to": "critic", "message": "right?"}),))
        return Reply({"critic": "all is well", "writer": f"it does ({said(asked)})"}.get(name, "a"))

    cli = home("research-team")
    async with ModelServer(model, models=["good"], key=KEY) as server:
        await begin(cli, server, tmp_path / "key")
        answer = await run(cli, "send", "main", "Does coffee keep people awake?")
        assert answer.strip() == "Report: it does (all is well)"
        assert server.violations == []
        asked = Counter(map(who, server.asked))
        assert (asked["web"], asked["papers"], asked["critic"]) == (1, 1, 1)
        assert tools_of(server, "critic") - {"result_read", "ask_user"} <= {"fs_read", "fs_list"}


async def test_a_coder_runs_what_was_approved(home: Home, tmp_path: Path) -> None:
    argv = ["python3", "-c", "print('2 tests passed')"]

    def model(asked: Asked) -> Reply:
        if has_result(asked):
            return Reply(f"It says: {said(asked)}")
        return Reply(calls=(Call("exec", {"argv": argv}),))

    cli = home("coder")
    config = cli.home / "config.toml"
    # Not every machine has what the fence needs; other tests look at it.
    config.write_text(config.read_text().replace('mode = "required"', 'mode = "auto"'))
    async with ModelServer(model, models=["good"], key=KEY) as server:
        await begin(cli, server, tmp_path / "key")
        message_id = (await run(cli, "send", "coder", "run the tests", "--no-wait")).strip()

        def listed() -> list[Any]:
            found: list[Any] = json.loads(cli.good("questions", "list", "--json"))["questions"]
            return found

        (question,) = await asyncio.to_thread(until, "it asks", listed)
        assert "2 tests passed" in await run(cli, "questions", "show", question["id"])
        assert len(server.asked) == 1
        await run(cli, "questions", "answer", question["id"], "once")

        def answered() -> str:
            one = json.loads(cli.good("messages", "show", message_id, "--json"))
            return str(one["result_text"] or "")

        answer = await asyncio.to_thread(until, "it has answered", answered)
        assert "It says: " in answer
        assert "2 tests passed" in answer
        assert server.violations == []
        assert {"exec", "fs_edit"} <= tools_of(server, "coder")


async def test_a_morning_report_comes_by_the_clock(home: Home, tmp_path: Path) -> None:
    page = (EXAMPLES / "morning-report.md").read_text(encoding="utf-8")
    line = re.search(r"^agentsup --home ~/report (tasks create .+)$", page, re.MULTILINE)
    assert line is not None
    cli = home("morning-report")
    async with ModelServer(lambda asked: Reply("dry today"), models=["good"], key=KEY) as server:
        await begin(cli, server, tmp_path / "key")
        task_id = json.loads(await run(cli, *shlex.split(line[1]), "--json"))["task_id"]
        assert "30 7 * * *" in await run(cli, "tasks", "show", task_id)
        # Its next time may be a day away; a person may have it now.
        assert await run(cli, "tasks", "resume", task_id, "--wait") == "dry today\n"
        (first, *_) = server.asked
        assert who(first) == "reporter"
        for part in ("You write one short report", "Four parts", "8:10"):
            assert part in str(first.messages)
        assert server.violations == []
