"""P7: nobody gets in by a browser, and out of the workspace comes nothing."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from agentsup.api.http import privacy
from agentsup.api.http.web_sessions import WebSession, WebSessions
from tests.component.proofs.house import QUICK_CONFIG, ProofDaemon, agent
from tests.component.proofs.proof import Claim, Proof, Removal

P2, P7 = Claim("P2"), Claim("P7")
PEOPLE = '[people.vera]\nrole = "viewer"\n[people.uwe]\nrole = "user"\n'


class Tab:
    """A page that keeps its secret and says where it comes from."""

    def __init__(self, house: ProofDaemon, http: aiohttp.ClientSession) -> None:
        self._url = house.daemon.api.url
        self._http = http
        self.secret = ""

    async def call(self, method: str, path: str, body: Any = None, **headers: str | None) -> int:
        """The status; ``headers`` replace those of the page, None leaves one out."""
        bearer = f"Bearer {self.secret}" if self.secret else None
        page = {"Origin": self._url, "Authorization": bearer}
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {name: value for name, value in {**page, **given}.items() if value}
        async with self._http.request(
            method, self._url + path, json=body, headers=sent
        ) as response:
            if path == "/web/login" and response.status == 200:
                self.secret = (await response.json())["secret"]
            return response.status

    async def sign_in(self, house: ProofDaemon, person: str = "") -> str:
        """The link that was used."""
        link = await house.daemon.api.one_time_link(person)
        await self.call("POST", "/web/login", {"code": code_of(link)})
        return link


def code_of(link: str) -> str:
    return link.partition("#code=")[2]


async def a_browser_gets_in_by_its_own_sign_in_only(home: Path) -> None:
    """Used, expired and guessed links; forged and ended secrets, cookies; pages and names of others."""
    async with (
        ProofDaemon(home, [agent("main")], is_real=True, config=QUICK_CONFIG + PEOPLE) as house,
        aiohttp.ClientSession() as http,
    ):
        holds = P7.holds
        own = Tab(house, http)
        link = await own.sign_in(house)
        holds(await own.call("GET", "/agents") == 200, "who signed in is not let in")
        stranger = Tab(house, http)
        got = await stranger.call("POST", "/web/login", {"code": code_of(link)})
        holds(got == 401, f"a used link was answered with {got}")
        late = await house.daemon.api.one_time_link()
        await house.database.write(lambda tx: tx.execute("UPDATE web_codes SET expires_at = 1"))
        got = await stranger.call("POST", "/web/login", {"code": code_of(late)})
        holds(got == 401, f"an expired link was answered with {got}")
        for secret in ("", own.secret[:-1] + "_", "x"):
            stranger.secret = secret
            got = await stranger.call("GET", "/agents")
            holds(got == 401, f"the secret {secret!r} was answered with {got}")
        stranger.secret = ""
        got = await stranger.call("GET", "/agents", Cookie=f"agentsup={own.secret}")
        holds(got == 401, f"a cookie was answered with {got}")
        foreign: list[dict[str, str | None]] = [
            {"Origin": "http://evil.example"},
            {"Origin": "null"},
            {"Host": "evil.example"},
        ]
        for headers in foreign:
            got = await own.call("POST", "/agents/main/restart", **headers)
            holds(got == 403, f"a foreign page ({headers}) was answered with {got}")
            got = await own.call("GET", "/agents", **headers)
            holds(got == 403, f"a foreign page ({headers}) read, answered with {got}")
        for path in ("/metrics", "/interagent/agents"):
            got = await own.call("GET", path)
            holds(got == 401, f"{path} took a page's secret for a token: {got}")
        vera = Tab(house, http)
        await vera.sign_in(house, "vera")
        got = await vera.call("POST", "/agents/main/stop")
        holds(got == 403, f"a viewer stopped an agent: {got}")
        await own.call("POST", "/web/logout")
        got = await own.call("GET", "/agents")
        holds(got == 401, f"a session that was ended was answered with {got}")
        uwe = Tab(house, http)
        await uwe.sign_in(house, "uwe")
        fewer = PEOPLE.replace("user", "viewer")
        house.home.config_toml.write_text(QUICK_CONFIG + fewer)
        await house.daemon.reconciler.reload()
        got = await uwe.call("POST", "/web/sessions", {"agent": "main", "conversation": "uwe"})
        holds(got == 403, f"who lost a role still acts in it: {got}")
        house.home.config_toml.write_text(QUICK_CONFIG)
        await house.daemon.reconciler.reload()
        got = await vera.call("GET", "/agents")
        holds(got == 401, f"who is no longer in [people] was answered with {got}")
        house.home.config_toml.write_text(QUICK_CONFIG + PEOPLE)
        await house.daemon.reconciler.reload()
        got = await vera.call("GET", "/agents")
        holds(got == 401, f"who was removed and named again came back by the old secret: {got}")


async def others_words_and_files_stay_theirs(home: Path) -> None:
    """A person of the house asks for another's conversation, messages and for the home's files."""
    async with (
        ProofDaemon(home, [agent("main")], is_real=True, config=QUICK_CONFIG + PEOPLE) as house,
        aiohttp.ClientSession() as http,
    ):
        holds = P7.holds
        await house.say("main", "hello")
        uwe = Tab(house, http)
        await uwe.sign_in(house, "uwe")
        got = await uwe.call("GET", "/web/history?agent=main&conversation=ute")
        holds(got == 403, f"another's conversation was answered with {got}")
        url = house.daemon.api.url
        async with http.get(
            f"{url}/messages", headers={"Authorization": f"Bearer {uwe.secret}"}
        ) as response:
            document = await response.json()
        (shown,) = document["messages"]
        holds(shown["text"] == "", "the words of another's message are shown")
        workspace = house.home.workspace("main")
        workspace.mkdir(parents=True, exist_ok=True)
        (workspace / "link").symlink_to(house.home.config_toml)
        for path in ("../../../config.toml", str(house.home.config_toml), "link"):
            number = await house.database.write(partial(_sent_tx, house, path))
            got = await uwe.call("GET", f"/web/files/{number}")
            holds(got != 200, f"{path} came out of the workspace")


def _sent_tx(house: ProofDaemon, path: str, tx: Any) -> int:
    """A file part as an engine that was talked into it sends one."""
    cursor = tx.execute(
        "INSERT INTO outbox (message_id, agent_id, channel, conversation, part_no, kind, body,"
        " state, created_at) VALUES ('', ?, 'web', 'uwe', 0, 'file', ?, 'delivered', 1)",
        (house.unit("main").agent_id, json.dumps({"path": path, "name": "x"})),
    )
    return int(cursor.lastrowid)


# -- removals --------------------------------------------------------------------------------------


def _before_redeem(patch: pytest.MonkeyPatch, sql: str) -> None:
    original = WebSessions.redeem

    async def redeem(self: WebSessions, *args: Any, **more: Any) -> tuple[str, WebSession]:
        await self._database.write(lambda tx: tx.execute(sql))
        return await original(self, *args, **more)

    patch.setattr(WebSessions, "redeem", redeem)


def _links_work_again(patch: pytest.MonkeyPatch) -> None:
    _before_redeem(patch, "UPDATE web_codes SET used_at = NULL")


def _everybody_enters(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(privacy, "may_enter", lambda *args, **more: True)


PROOFS = (
    Proof(
        "a browser gets in by its own sign-in only",
        "P7",
        a_browser_gets_in_by_its_own_sign_in_only,
        Removal("links that work again", _links_work_again),
        is_real=True,
    ),
    Proof(
        "others' words and files stay theirs",
        "P7",
        others_words_and_files_stay_theirs,
        Removal("everybody enters every conversation", _everybody_enters),
        is_real=True,
    ),
)
