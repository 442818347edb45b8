"""Getting in as a person does: links with QR codes, names of others, a LAN, a proxy, ``pair``."""

from __future__ import annotations

import contextlib
import json
import re
import tomllib
import urllib.request
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from agentsup.fakes.telegram.driver import TelegramDriver
from tests.process.cli.process_cli import Cli, until
from tests.support.bound import BOUND_S
from tests.support.ports import free_port
from tests.support.telegram_process import FakeTelegramProcess

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

NAME = "agents.home.example"
TOKEN = "7001:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
BLOCKS = re.compile("[█▀▄ ]{20,}")


def config(cli: Cli, text: str) -> None:
    (cli.home / "config.toml").write_text(text)


def test_a_link_is_drawn_where_another_machine_can_use_it(cli: Cli) -> None:
    config(cli, f'[api]\nport = {cli.port}\nallowed_hosts = ["{NAME}"]\n')
    cli.daemon()
    base = f"http://{NAME}:{cli.port}"
    seen = cli.in_terminal("link", "--base", base, columns=40)
    lines = [line for line in seen.splitlines() if BLOCKS.fullmatch(line)]
    assert len(lines) > 15
    assert {len(line) for line in lines} <= set(range(30, 41))
    assert "this machine only" in " ".join(seen.split())
    assert "without https" in " ".join(seen.split())
    # Here, in a pipe and as JSON there is no code; what is doubtful is on standard error.
    assert not BLOCKS.search(cli.in_terminal("link"))
    done = cli.run("link", "--base", base)
    assert done.stdout.startswith(f"{base}/#code=")
    assert len(done.stdout.splitlines()) == 1
    assert "without https" in " ".join(done.stderr.split())
    assert json.loads(cli.good("link", "--json"))["doubts"] == ["here"]
    wrong = cli.run("link", "--base", "https://elsewhere.example")
    assert wrong.returncode == 1
    assert 'allowed_hosts = ["elsewhere.example"]' in wrong.stderr


def test_the_recipe_for_a_local_network(cli: Cli) -> None:
    """The phone's way is played: another of this machine's addresses, and the name in ``Host``."""
    name = "192.168.1.20"
    config(cli, f'[api]\nport = {cli.port}\nbind = "0.0.0.0"\nallowed_hosts = ["{name}"]\n')
    cli.daemon()
    link = json.loads(cli.good("link", "--base", f"http://{name}:{cli.port}", "--json"))
    assert link["doubts"] == ["open"]
    page, _, code = link["url"].partition("/#code=")
    there, host = f"http://127.0.0.2:{cli.port}", {"Host": f"{name}:{cli.port}"}
    look = urllib.request.Request(f"{there}/", headers=host)
    with urllib.request.urlopen(look, timeout=BOUND_S) as shown:
        assert shown.status == 200
        assert "<html" in shown.read().decode()
    body = json.dumps({"code": code}).encode()
    headers = {**host, "Content-Type": "application/json", "Origin": page}
    sent = urllib.request.Request(f"{there}/web/login", body, headers)
    with urllib.request.urlopen(sent, timeout=BOUND_S) as signed_in:
        assert json.loads(signed_in.read())["who"] == "operator"


class Proxy:
    """Forwards each request with the ``Host`` that the browser named, as Caddy does."""

    def __init__(self, behind: str) -> None:
        self.behind = behind
        self.port = free_port()

    async def forward(self, request: web.Request) -> web.Response:
        headers = {k: v for k, v in request.headers.items() if k.lower() != "content-length"}
        async with (
            aiohttp.ClientSession() as client,
            client.request(
                request.method,
                self.behind + request.path,
                data=await request.read(),
                headers=headers,
                allow_redirects=False,
            ) as answer,
        ):
            return web.Response(
                body=await answer.read(),
                status=answer.status,
                headers={"Content-Type": answer.headers["Content-Type"]},
            )

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.forward)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self.port).start()
        try:
            yield f"http://127.0.0.1:{self.port}"
        finally:
            await runner.cleanup()


async def test_the_recipe_for_a_proxy_with_https(cli: Cli) -> None:
    config(cli, f'[api]\nport = {cli.port}\nallowed_hosts = ["{NAME}"]\n')
    cli.daemon()
    link = json.loads(cli.good("link", "--base", f"https://{NAME}", "--json"))
    assert (link["doubts"], link["warnings"]) == ([], [])
    code = link["url"].partition("#code=")[2]
    browser = {"Host": NAME, "Accept": "text/html", "Origin": f"https://{NAME}"}
    proxy = Proxy(f"http://127.0.0.1:{cli.port}")
    async with proxy.running() as front, aiohttp.ClientSession() as client:
        async with client.get(f"{front}/", headers=browser) as shown:
            assert (shown.status, shown.content_type) == (200, "text/html")
        sent = {**browser, "Accept": "application/json"}
        async with client.post(f"{front}/web/login", json={"code": code}, headers=sent) as done:
            assert (await done.json())["who"] == "operator"
        # Its name is not listed yet: the browser says which setting to change.
        async with client.get(f"{front}/", headers={**browser, "Host": "new.example"}) as shown:
            text = await shown.text()
            assert (shown.status, shown.content_type) == (403, "text/html")
            assert "allowed_hosts = [&quot;new.example&quot;]" in text


async def test_the_owner_of_a_fresh_bot_gets_in_by_the_command_line(cli: Cli) -> None:
    async with (
        FakeTelegramProcess(cli.home.with_name("fake")) as fake,
        TelegramDriver(fake.url) as people,
    ):
        bot = await people.add_bot(TOKEN, username="main_bot")
        cli.home.joinpath("bot.token").write_text(TOKEN)
        cli.home.joinpath("bot.token").chmod(0o600)
        main = f'telegram_token = "file:bot.token"\ntelegram_base_url = "{fake.url}"\n'
        config(cli, f"[api]\nport = {cli.port}\n\n[main]  # mine\n{main}")
        cli.daemon()
        assert cli.run("pair").returncode == 0
        ann = await people.user("Ann\u202e")
        chat = await people.private(ann, bot)
        await people.say(chat, "hello")
        told = await people.wait_text(chat, "agentsup pair ")
        code = re.findall(r"agentsup pair ([A-Z2-9-]{9})", str(told))[0]
        listed = cli.good("pair")
        assert code in listed
        assert "\u202e" not in listed
        wrong = cli.run("pair", "AAAA-AAAA")
        assert (wrong.returncode, "no open request" in wrong.stderr) == (1, True)
        assert cli.run("pair", "--role", "operator").returncode == 2
        done = cli.good("pair", code, "--role", "operator", "--name", "ann")
        assert "may talk to every agent now, as operator" in done
        assert "# mine" in (cli.home / "config.toml").read_text()
        found = tomllib.loads((cli.home / "config.toml").read_text())["people"]
        assert found == {"ann": {"role": "operator", "telegram": [ann]}}
        first = await people.say(chat, "/agents")
        await people.wait_text(chat, "main", after=first)
        # Refused: no word, and no other code.
        eve = await people.private(await people.user("Ann"), bot)
        await people.say(eve, "hello")
        told = await people.wait_text(eve, "agentsup pair ")
        code = re.findall(r"agentsup pair ([A-Z2-9-]{9})", str(told))[0]
        assert "Refused" in cli.good("pair", code, "--refuse")
        await people.say(eve, "and now?")
        first = await people.say(chat, "/agents")
        await people.wait_text(chat, "main", after=first)
        assert len(await people.texts(eve)) == 1
        until("nobody asks", lambda: "Nobody" in cli.run("pair").stderr)
