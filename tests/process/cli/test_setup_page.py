"""Setup in the page, by the requests that the page makes: what is checked, written and never shown."""

from __future__ import annotations

import asyncio
import json
import os
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from agentsup.fakes.telegram.driver import TelegramDriver
from tests.process.cli.process_cli import Cli
from tests.support.model_server import ModelServer, Reply
from tests.support.telegram_process import FakeTelegramProcess

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

KEY = "sk-a-key-of-nobody-4711"
MODELS = ("good-large", "good-mini")
TOKEN = "7001:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"


class Page:
    """Sends what the page of an operator sends."""

    def __init__(self, cli: Cli, http: aiohttp.ClientSession) -> None:
        self._http = http
        self._url = json.loads((cli.home / "daemon.json").read_text())["url"]

    async def post(self, path: str, **body: Any) -> tuple[int, Any]:
        async with self._http.post(f"{self._url}{path}", json=body) as response:
            return response.status, await response.json()

    async def get(self, path: str) -> Any:
        async with self._http.get(f"{self._url}{path}") as response:
            return await response.json()


@asynccontextmanager
async def page_of(cli: Cli, path: str = os.environ["PATH"], key: str = "") -> AsyncIterator[Page]:
    up = await asyncio.to_thread(
        lambda: cli.run("up", "--no-chat", PATH=path, ANTHROPIC_API_KEY=key)
    )
    assert up.returncode == 0, up.stderr
    token = (cli.home / "api.token").read_text().strip()
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as http:
        yield Page(cli, http)


def found_in(home: Path, secret: str) -> set[str]:
    """The files of the home that hold ``secret``."""
    return {
        str(path.relative_to(home))
        for path in home.rglob("*")
        if path.is_file() and secret.encode() in path.read_bytes()
    }


async def test_a_model_is_set_up_from_the_page(cli: Cli) -> None:
    (cli.home / "agents.json").write_text("[]")
    async with (
        ModelServer(lambda asked: Reply("I am here."), models=MODELS, key=KEY) as server,
        ModelServer(lambda asked: Reply("ready")) as other,
        page_of(cli) as page,
    ):
        offered = {each["name"]: each for each in (await page.get("/setup"))["providers"]}
        assert offered["openai"]["needs_key"]
        assert not offered["openai"]["has_key"]
        where = {"provider": "compatible", "base_url": server.base_url}
        status, said = await page.post("/setup/models", **where, key="sk-wrong-key-of-nobody")
        assert (status, said["code"]) == (502, "auth_failed")
        assert "of-nobody" not in json.dumps(said)
        status, said = await page.post("/setup/models", **where, key=KEY)
        assert (status, said["names"]) == (200, list(MODELS))
        status, said = await page.post("/setup/test", **where, key=KEY, model="good-mini")
        assert (status, said["model"], said["usd"]) == (200, "good-mini", None)
        status, said = await page.post("/setup/model", **where, key=KEY, model="good-mnii")
        assert (status, "Did you mean good-mini" in said["detail"]) == (502, True)
        assert not (cli.home / "secrets").exists()
        status, said = await page.post("/setup/model", **where, key=KEY, model="good-mini")
        assert (status, said["success"]) == (200, True)
        key = cli.home / "secrets" / "compatible.key"
        assert (key.read_text(), key.stat().st_mode & 0o777) == (f"{KEY}\n", 0o600)
        assert tomllib.loads((cli.home / "config.toml").read_text())["agent_defaults"] == {
            "model": "good-mini",
            "provider": "openai",
            "engine_options": {
                "base_url": server.base_url,
                "api_key": "file:secrets/compatible.key",
            },
        }
        [main] = (await page.get("/agents"))["agents"]
        assert (main["engine"], main["engine_problem"]) == ("llm", "")
        answer = await asyncio.to_thread(cli.good, "chat", stdin="hello\n")
        assert "I am here." in answer
        status, said = await page.post("/setup/model", **where, model="good-large")
        assert (status, said["success"]) == (200, True), "the key that is known is used"
        elsewhere = {"provider": "compatible", "base_url": other.base_url}
        status, said = await page.post("/setup/test", **elsewhere, model="good-mini")
        assert status == 200
        assert KEY not in json.dumps(other.asked[0].headers), "a key stays with its address"
        assert found_in(cli.home, KEY) == {"secrets/compatible.key"}
        for wrong in ({"provider": "nobody"}, {**where, "base_url": "http://u:p@x/v1"}):
            status, said = await page.post("/setup/models", **wrong)
            assert (status, said["code"]) == (400, "bad_request"), said


async def test_a_coding_agent_and_an_operator_are_set_up_from_the_page(
    cli: Cli, tmp_path: Path
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "claude").write_text("#!/bin/sh\nexit 1\n")
    (programs / "claude").chmod(0o755)
    (cli.home / "agents.json").write_text('[{"name": "rules", "engine": "scripted"}]')
    async with page_of(cli, f"{programs}:{os.environ['PATH']}", "sk-none") as page:
        told = await page.get("/setup")
        found = {each["name"]: each for each in told["programs"]}
        assert "signed in by ANTHROPIC_API_KEY" in found["claude"]["state"]
        assert told["restart_info"]["by"] == "parent"
        assert told["restart_info"]["command"].endswith("service install")
        status, said = await page.post("/setup/program", name="claude")
        assert (status, said) == (200, {"success": True, "others": ["rules"]})
        engines = {each["name"]: each["engine"] for each in (await page.get("/agents"))["agents"]}
        assert engines == {"main": "claude", "rules": "scripted"}
        assert (await page.post("/setup/program", name="nothing-here"))[0] == 404
        assert (await page.post("/setup/operator", person="Ann!"))[0] == 400
        assert (await page.post("/setup/operator", person="ann"))[0] == 200
        assert (await page.post("/setup/operator", person="ann"))[0] == 409
        assert (await page.post("/setup/operator", person="ann", telegram_id=7))[0] == 200
    config = tomllib.loads((cli.home / "config.toml").read_text())
    assert config["people"]["ann"] == {"role": "operator", "telegram": [7]}


async def test_a_bot_is_set_up_from_the_page(cli: Cli, tmp_path: Path) -> None:
    async with FakeTelegramProcess(tmp_path) as fake, TelegramDriver(fake.url) as people:
        bot = await people.add_bot(TOKEN, username="helper_bot")
        anna = await people.user("Anna")
        with (cli.home / "config.toml").open("a") as config:
            config.write(f'[main]\ntelegram_base_url = "{fake.url}"\n')
        async with page_of(cli) as page:
            wrong = "7002:BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB"
            status, said = await page.post("/setup/bot", token=wrong)
            assert status >= 400
            assert wrong not in json.dumps(said)
            status, said = await page.post("/setup/bot", token="no token")
            assert (status, said["code"]) == (400, "bad_request")
            assert not (cli.home / "secrets").exists()
            status, said = await page.post(
                "/setup/bot", token=TOKEN, person="anna", telegram_id=anna
            )
            assert (status, said["username"]) == (200, "helper_bot"), said
            assert found_in(cli.home, TOKEN) == {"secrets/main-telegram.token"}
            chat = await people.private(anna, bot)
            await people.say(chat, "/start", user=anna)
            await people.wait_text(chat, "You are talking to main")
