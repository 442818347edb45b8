"""``agentsup setup`` and ``models`` as a person meets them: at a terminal, and in a script."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import tomllib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType

import pytest

from agentsup.fakes.telegram.driver import TelegramDriver
from tests.process.cli.process_cli import ENV, Cli, read_terminal
from tests.support.bound import BOUND_S
from tests.support.model_server import ModelServer, Reply
from tests.support.telegram_process import FakeTelegramProcess

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

KEY = "sk-a-key-of-nobody-4711"
MODELS = ("good-large", "good-mini")
TOKEN = "7001:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"


def at_terminal(
    cli: Cli,
    words: Sequence[str],
    said: Sequence[tuple[str, str]],
    env: Mapping[str, str] = MappingProxyType({}),
) -> tuple[int, str]:
    """The code and the output of a command; each answer is typed when its question is shown."""
    ours, terminal = pty.openpty()
    seen, at = "", 0
    with cli.forked(words, {**ENV, "TERM": "xterm", **env}, (terminal, terminal, terminal)) as life:
        os.close(terminal)
        waiting = list(said)
        while data := read_terminal(ours):
            seen += data.decode()
            while waiting and waiting[0][0] in seen[at:]:
                question, answer = waiting.pop(0)
                at += seen[at:].index(question) + len(question)
                os.write(ours, f"{answer}\n".encode())
        os.close(ours)
        assert waiting == [], seen
        return life.wait(BOUND_S), seen


async def run(cli: Cli, *words: str, stdin: str = "", code: int = 0) -> str:
    """What a command prints, on one line."""
    done = await asyncio.to_thread(cli.run, *words, stdin=stdin)
    assert done.returncode == code, done.stdout + done.stderr
    return " ".join((done.stdout + done.stderr).split())


def settings(cli: Cli) -> dict[str, object]:
    return tomllib.loads((cli.home / "config.toml").read_text())


async def test_the_wizard_leads_to_a_model_that_answers_and_lasts(cli: Cli) -> None:
    async with ModelServer(lambda asked: Reply("ready"), models=MODELS, key=KEY) as server:
        said = [
            ("Number:", "9"),
            ("Address of the server:", server.base_url),
            ("not shown", "sk-wrong-key-of-nobody"),
            ("not shown", KEY),
            ("Model (number or name):", "mini"),
            ("Model (number or name):", "1"),
            ("Try good-mini", ""),
            ("Telegram bot", "n"),
            ("Start the daemon with this machine?", "n"),
        ]
        code, seen = await asyncio.to_thread(at_terminal, cli, ["setup"], said)
        assert code == 0, seen
        assert "does not accept this key" in " ".join(seen.split())
        assert "good-mini answered in" in seen
        assert "of-nobody" not in seen
        key = cli.home / "secrets" / "compatible.key"
        assert (key.read_text(), key.stat().st_mode & 0o777) == (f"{KEY}\n", 0o600)
        assert settings(cli)["agent_defaults"] == {
            "model": "good-mini",
            "provider": "openai",
            "engine_options": {
                "base_url": server.base_url,
                "api_key": "file:secrets/compatible.key",
            },
        }
        up = await asyncio.to_thread(cli.run, "up", "--no-chat")
        assert "The engine llm answers with good-mini." in up.stdout, up.stderr
        again = await asyncio.to_thread(cli.run, "restart")
        assert "The engine llm answers with good-mini." in again.stdout, again.stderr
        loaded = {"name": "good-mini", "context_length": 4096}
        server.documents["/api/ps"] = {"models": [loaded]}
        tried = await asyncio.to_thread(cli.good, "models", "test")
        assert "good-mini answered in" in tried
        assert "OLLAMA_CONTEXT_LENGTH=32768" in " ".join(tried.split())
        one, seen = await asyncio.to_thread(at_terminal, cli, ["setup"], [("Number:", "nothing")])
        assert (one, "What do you want to change?" in seen) == (0, True)


async def test_a_script_names_every_answer(cli: Cli, tmp_path: Path) -> None:
    key, wrong = tmp_path / "key", tmp_path / "wrong"
    key.write_text(KEY)
    wrong.write_text("sk-wrong-key-of-nobody")
    async with ModelServer([Reply("ready")], models=MODELS, key=KEY) as server:
        where = ["--provider", "compatible", "--base-url", server.base_url]

        async def run(*words: str) -> tuple[int, str]:
            done = await asyncio.to_thread(cli.run, *words)
            return done.returncode, done.stdout + done.stderr

        down = ("--base-url", "http://127.0.0.1:9/v1", "--model", "good", "--no-test")
        code, said = await run("setup", "--provider", "compatible", *down)
        assert (code, "server up? good is taken" in " ".join(said.split())) == (0, True), said
        code, said = await run("setup")
        assert (code, "name what you want, such as --provider" in said) == (2, True)
        code, said = await run("setup", *where, "--key-file", str(wrong), "--model", "good-mini")
        assert (code, "does not accept this key" in said, "nobody" in said) == (1, True, False)
        code, said = await run("setup", *where, "--key-file", str(key), "--model", "good-mnii")
        assert (code, "Did you mean good-mini" in said) == (1, True)
        assert not (cli.home / "secrets").exists()
        code, said = await run("setup", *where, "--key-file", str(key))
        assert (code, "--model is missing; it has good-large, good-mini" in said) == (2, True)
        code, said = await run("setup", *where, "--key-file", str(key), "--model", "good-mini")
        assert code == 0, said
        code, said = await run("models", "set", "good-large", "--agent", "writer")
        assert (code, '+ "model": "good-large"' in said) == (0, True)
        code, said = await run("models", "list")
        assert (code, said) == (0, "good-large\ngood-mini  (in use)\n")


async def test_the_only_model_is_taken_and_that_there_is_none_is_said(cli: Cli) -> None:
    async with ModelServer(lambda asked: Reply("ready"), models=("llama3.2",)) as one:
        words = ["setup", "--provider", "ollama", "--base-url", one.base_url]
        done = await asyncio.to_thread(cli.run, *words)
        assert done.returncode == 0, done.stderr
        assert "has one model, llama3.2." in done.stdout
        assert "llama3.2 answered in" in done.stdout
        assert "llama3.2" in str(settings(cli)["agent_defaults"])
    async with ModelServer() as none:
        words = ["setup", "--provider", "ollama", "--base-url", none.base_url]
        code, shown = await asyncio.to_thread(at_terminal, cli, words, [])
        assert (code, "has no model: `ollama pull NAME`" in " ".join(shown.split())) == (1, True)


async def test_a_key_that_is_gone_or_wrong_is_told_and_the_daemon_stays_up(cli: Cli) -> None:
    """Both with the engine named: its missing file once ended the daemon at its start."""
    async with ModelServer(lambda asked: Reply("I am here."), models=MODELS, key=KEY) as server:
        with (cli.home / "config.toml").open("a") as config:
            config.write(
                '[agent_defaults]\nengine = "llm"\nmodel = "good-mini"\nengine_options = '
                f'{{ base_url = "{server.base_url}", api_key = "file:secrets/own.key" }}\n'
            )
        (cli.home / "agents.json").write_text("[]")
        good = partial(run, cli)

        assert "own.key" in await good("up", "--no-chat")
        assert "own.key" in await good("chat", stdin="hello\n")
        listed = await good("agents", "list")
        assert listed.count("own.key") == 1, "once, below the table"
        key = cli.home / "secrets" / "own.key"
        key.parent.mkdir(mode=0o700, exist_ok=True)
        key.write_text("sk-wrong-key-of-nobody")
        key.chmod(0o600)
        await good("chat", stdin="hello\n")
        for words in (("status",), ("doctor",), ("agents", "list")):
            said = await asyncio.to_thread(cli.run, *words)
            assert "does not accept the key" in " ".join(said.stdout.split()), said
            assert "of-nobody" not in said.stdout
        key.write_text(KEY)
        again = await good("restart")
        assert "The engine llm answers with good-mini." in again
        assert "I am here." in await good("chat", stdin="hello\n")
        listed = await good("chat", stdin="/model\n")
        assert f"{server.base_url} has these models: good-large ● good-mini" in listed
        refused = await good("chat", stdin="/model good-lagre\n")
        assert "has no model named 'good-lagre'. Did you mean good-large or" in refused
        assert "good-large from now on" in await good("chat", stdin="/model good-large\n")


async def test_an_address_alone_takes_the_only_model_and_lists_several(cli: Cli) -> None:
    """As somebody does who has a server of their own and names no model."""
    async with ModelServer(lambda asked: Reply("I am here."), models=["llama3.2"]) as server:
        (cli.home / "environment").write_text(f"OPENAI_BASE_URL={server.base_url}\n")
        (cli.home / "agents.json").write_text("[]")
        good = partial(run, cli)

        assert "The engine llm answers with llama3.2." in await good("up", "--no-chat")
        assert "llama3.2" in await good("agents", "list")
        for _ in range(3):
            assert "I am here." in await good("chat", stdin="hello\n")
        assert server.lists <= 2, "for its model and for its context, and not with each turn"
        server.models = ("llama3.2", "qwen3:8b")
        why = f"main: the server {server.base_url} has 2 models, and none of them is chosen"
        assert why in await good("restart")
        assert why in await good("status")
        said = await good("chat", stdin="hello\n")
        assert f"The server {server.base_url} has 2 models" in said
        assert "It has: llama3.2, qwen3:8b. Choose: /model llama3.2" in said
        await good("chat", stdin="/model qwen3:8b\n")
        assert "I am here." in await good("chat", stdin="hello\n")
        assert server.asked[-1].body["model"] == "qwen3:8b"


async def test_a_chat_has_a_model_of_its_own_until_it_goes_back(cli: Cli) -> None:
    async with ModelServer(lambda asked: Reply("I am here."), models=MODELS, key=KEY) as server:
        with (cli.home / "config.toml").open("a") as config:
            config.write(
                '[agent_defaults]\nengine = "llm"\nmodel = "good-mini"\nengine_options = '
                f'{{ base_url = "{server.base_url}", api_key = "{KEY}" }}\n'
            )
        (cli.home / "agents.json").write_text("[]")
        said = partial(run, cli)

        async def asked() -> str:
            await said("chat", stdin="hello\n")
            return str(server.asked[-1].body["model"])

        await said("up", "--no-chat")
        assert await asked() == "good-mini"
        wrong = await said("chat", stdin="/model here good-lagre\n")
        assert "Did you mean good-large" in wrong
        assert "nobody has written to main in telegram:1" in await said(
            *("models", "set", "good-large", "--chat", "telegram:1"), code=1
        )
        told = await said("models", "set", "good-large", "--chat", "console:local")
        assert told == "good-large answers in console:local from the next turn on."
        assert "console:local good-large yes" in await said("models", "chats")
        await said("restart")
        assert await asked() == "good-large"
        await said("models", "set", "default", "--chat", "console:local")
        assert await asked() == "good-mini"


async def test_a_coding_agent_is_chosen_and_its_end_is_told(cli: Cli, tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    claude = programs / "claude"
    claude.write_text("#!/bin/sh\nexit 0\n")
    claude.chmod(0o755)
    # Alone: a machine may have the program, too.
    path = {"PATH": str(programs), "ANTHROPIC_API_KEY": "sk-of-nobody"}
    (cli.home / "agents.json").write_text(
        '[{"name": "ann"}, {"name": "bob", "engine": "scripted"}]'
    )
    said = [
        ("Claude Code (", "claude"),
        ("Telegram bot", "n"),
        ("Start the daemon with this machine?", "n"),
    ]
    code, seen = await asyncio.to_thread(at_terminal, cli, ["setup"], said, path)
    assert code == 0, seen
    assert settings(cli)["agent_defaults"] == {"engine": "claude"}
    entries = json.loads((cli.home / "agents.json").read_text())
    assert [each.get("engine") for each in entries] == ["claude", "scripted"]
    up = await asyncio.to_thread(
        cli.run, "up", "--no-chat", PATH=path["PATH"], ANTHROPIC_API_KEY="sk-of-nobody"
    )
    assert "The engine claude answers" in up.stdout, up.stderr
    claude.unlink()
    listed = await asyncio.to_thread(cli.good, "status")
    assert f"the program claude is not on the PATH ({programs})" in " ".join(listed.split())
    await asyncio.to_thread(cli.good, "stop")
    folder = cli.home / "person" / ".local" / "bin"
    folder.mkdir(parents=True)
    (folder / "claude").write_text("#!/bin/sh\nexit 0\n")
    (folder / "claude").chmod(0o755)
    person = str(cli.home / "person")
    up = await asyncio.to_thread(
        partial(cli.run, "up", "--no-chat", PATH=path["PATH"], HOME=person)
    )
    assert "answers" not in up.stdout
    assert f"but in {folder}" in " ".join(up.stdout.split())


async def test_a_provider_is_not_taken_for_a_coding_agent_of_its_name(cli: Cli) -> None:
    done = await asyncio.to_thread(cli.run, "setup", "--provider", "gemini")
    assert "--key-file is missing" in done.stderr
    done = await asyncio.to_thread(cli.run, "setup", "--provider", "gemini-cli", PATH="")
    assert "the program gemini is not on the PATH" in " ".join(done.stderr.split())


async def test_the_owner_is_found_by_writing_to_the_bot(cli: Cli, tmp_path: Path) -> None:
    """What was written while setup waited is not lost: the daemon reads it later."""
    async with FakeTelegramProcess(tmp_path) as fake, TelegramDriver(fake.url) as people:
        bot = await people.add_bot(TOKEN, username="helper_bot")
        eve, ola = await people.user("Eve"), await people.user("Ola")
        for who in (eve, ola):
            await people.say(await people.private(who, bot), "hello", user=who)
        with (cli.home / "config.toml").open("a") as config:
            config.write(f'[main]\ntelegram_base_url = "{fake.url}"\n')
        said = [
            ("Number:", "bot"),
            ("not shown", "no token"),
            ("not shown", TOKEN),
            ("Shall I wait", "y"),
            (f"Eve (id {eve}) wrote. Is that you?", "n"),
            (f"Ola (id {ola}) wrote. Is that you?", "y"),
            ("Your name here", "ola"),
        ]
        with (cli.home / "config.toml").open("a") as config:
            config.write('[agent_defaults]\nengine = "scripted"\nmodel = "m"\n')
        code, seen = await asyncio.to_thread(at_terminal, cli, ["setup"], said)
        assert code == 0, seen
        assert TOKEN not in seen
        assert settings(cli)["people"] == {"ola": {"role": "operator", "telegram": [ola]}}
        waiting = await people.call(TOKEN, "getUpdates")
        assert [each["message"]["from"]["id"] for each in waiting["result"]] == [eve, ola]


async def test_a_bot_is_checked_live_and_gets_its_owner(cli: Cli, tmp_path: Path) -> None:
    token, wrong = tmp_path / "token", tmp_path / "wrong"
    token.write_text(TOKEN)
    wrong.write_text("7002:BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB")
    async with FakeTelegramProcess(tmp_path) as fake, TelegramDriver(fake.url) as people:
        await people.add_bot(TOKEN, username="helper_bot")
        with (cli.home / "config.toml").open("a") as config:
            config.write(f'[main]\ntelegram_base_url = "{fake.url}"\n')
        words = ["setup", "--person", "anna", "--telegram-id", "4711", "--bot-token-file"]
        refused = await asyncio.to_thread(cli.run, *words, str(wrong))
        assert refused.returncode == 1
        assert "people" not in settings(cli)
        done = await asyncio.to_thread(cli.run, *words, str(token))
        assert done.returncode == 0, done.stderr
        assert "Telegram knows this bot: @helper_bot." in done.stdout
        found = settings(cli)
        assert found["people"] == {"anna": {"role": "operator", "telegram": [4711]}}
        assert (cli.home / "secrets" / "main-telegram.token").read_text() == f"{TOKEN}\n"
        assert TOKEN not in done.stdout + (cli.home / "config.toml").read_text()
        await asyncio.to_thread(cli.good, "agents", "validate")
