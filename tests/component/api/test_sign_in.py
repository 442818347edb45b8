"""Signing in to the page: links used once, secrets that end, and nobody else's page let in (P7)."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from yarl import URL

from agentsup.api.http import web_sessions as books
from agentsup.api.http.access import BROWSER, Access
from agentsup.api.http.route import ApiRoute
from agentsup.api.server.listener import ROUTES, ApiServer
from agentsup.model.errors import AgentsupError
from agentsup.model.principal import PersonRole
from tests.component.api.browser import Browser, book_of, frame
from tests.component.api.conftest import OPERATOR_TOKEN, PEOPLE, ApiFixture
from tests.support.bound import BOUND_S

HARMLESS = {
    "name": "nobody",
    "id": "nothing",
    "outbox_id": "0",
    "number": "0",
    "language": "de",
}
PAGE_ROUTES = [pytest.param(r, id=f"{r.method} {r.path}") for r in ROUTES if r.access in BROWSER]
OTHERS = [r for r in ROUTES if r.access in (Access.ANY, Access.OPERATOR)]
DAY_MS = 86_400_000


def path_of(route: ApiRoute) -> str:
    return route.path.format(**HARMLESS)


async def code_for(rig: ApiFixture, person: str = "") -> str:
    return (await book_of(rig).issue(person)).code


def later(rig: ApiFixture, monkeypatch: pytest.MonkeyPatch, ms: int) -> None:
    now_ms = rig.deps.clock.now_ms
    monkeypatch.setattr(book_of(rig)._clock, "now_ms", lambda: now_ms() + ms)


# -- the exchange ----------------------------------------------------------------------------------


async def test_a_link_opens_one_browser_once(rig: ApiFixture) -> None:
    code = await code_for(rig)
    first, second = Browser(rig), Browser(rig)
    status, document, headers = await first.call("POST", "/web/login", {"code": code})
    assert (status, document["who"], document["may"]) == (
        200,
        "operator",
        ["look", "talk", "steer", "work"],
    )
    assert headers["Cache-Control"] == "no-store"
    secret = document["secret"]
    assert code not in str(document)
    status, document, _ = await first.call("GET", "/web/session")
    assert status == 200
    assert secret not in str(document), "it is told once"
    status, document, _ = await second.call("POST", "/web/login", {"code": code})
    assert (status, document["code"]) == (401, "login_failed")
    assert (await second.call("GET", "/web/session"))[0] == 401
    assert (await first.call("GET", "/web/session"))[0] == 200


async def test_of_two_exchanges_at_once_one_wins(rig: ApiFixture) -> None:
    code = await code_for(rig)
    answers = await asyncio.gather(
        *(Browser(rig).call("POST", "/web/login", {"code": code}) for _ in range(6))
    )
    assert sorted(status for status, _, _ in answers) == [200, 401, 401, 401, 401, 401]


async def test_a_link_ends_after_ten_minutes(
    rig: ApiFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_time, late = await code_for(rig), await code_for(rig)
    later(rig, monkeypatch, 599_000)
    assert (await Browser(rig).call("POST", "/web/login", {"code": in_time}))[0] == 200
    later(rig, monkeypatch, 2_000)
    assert (await Browser(rig).call("POST", "/web/login", {"code": late}))[0] == 401


async def test_the_operators_token_opens_too_and_no_other(rig: ApiFixture) -> None:
    browser = Browser(rig)
    run = rig.tokens.issue_run("agt_worker", "worker", "msg_1")
    for wrong in ("wrong", "wröng", rig.agent_tokens["main"], run):
        assert (await browser.call("POST", "/web/login", {"token": wrong}))[0] == 401
    status, document, _ = await browser.call("POST", "/web/login", {"token": OPERATOR_TOKEN})
    assert (status, document["is_operator"]) == (200, True)
    assert browser.secret not in (OPERATOR_TOKEN, "")
    for body in ({}, {"code": "x", "token": "y"}, {"code": ""}, {"password": "x"}):
        assert (await Browser(rig).call("POST", "/web/login", body))[0] == 400


async def test_guessing_is_slowed_down_and_stops_nobody_else(
    rig: ApiFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(10):
        answer = await Browser(rig).call("POST", "/web/login", {"code": f"guess{number}"})
        assert answer[0] == 401
    for guess in ({"code": "guess"}, {"token": "guess"}):
        status, document, headers = await Browser(rig).call("POST", "/web/login", guess)
        assert (status, document["code"], int(headers["Retry-After"])) == (429, "overloaded", 60)
    # Who has what opens gets in meanwhile, and guessing is not forgiven by it.
    for good in ({"code": await code_for(rig)}, {"token": OPERATOR_TOKEN}):
        assert (await Browser(rig).call("POST", "/web/login", good))[0] == 200
    assert (await Browser(rig).call("POST", "/web/login", {"code": "guess"}))[0] == 429
    monotonic = rig.deps.clock.monotonic
    monkeypatch.setattr(book_of(rig)._clock, "monotonic", lambda: monotonic() + 61)
    assert (await Browser(rig).call("POST", "/web/login", {"code": "guess"}))[0] == 401


async def test_failures_are_counted_by_address_and_in_all(rig: ApiFixture) -> None:
    book = book_of(rig)

    async def code(address: str) -> str:
        with pytest.raises(AgentsupError) as refused:
            await book.redeem("guess", address)
        return refused.value.code

    assert [await code("a") for _ in range(11)] == ["login_failed"] * 10 + ["overloaded"]
    assert await code("b") == "login_failed"
    assert [await code(f"c{n}") for n in range(89)] == ["login_failed"] * 88 + ["overloaded"]


async def test_who_was_removed_does_not_come_back_by_an_old_secret(rig: ApiFixture) -> None:
    browser = Browser(rig)
    await browser.sign_in("uwe")
    unused = await code_for(rig, "uwe")
    role = rig.people.pop("uwe")
    rig.server.people_changed()
    rig.people["uwe"] = role
    rig.server.people_changed()
    assert (await browser.call("GET", "/web/session"))[0] == 401
    assert (await Browser(rig).call("POST", "/web/login", {"code": unused}))[0] == 401
    await book_of(rig).load(rig.server.port)
    assert (await browser.call("GET", "/web/session"))[0] == 401


async def test_who_was_removed_meanwhile_is_forgotten_at_start(rig: ApiFixture) -> None:
    removed, stays = Browser(rig), Browser(rig)
    await removed.sign_in("uwe")
    await stays.sign_in("ute")
    unused = await code_for(rig, "uwe")
    role = rig.people.pop("uwe")
    await book_of(rig).load(rig.server.port)
    rig.people["uwe"] = role
    await book_of(rig).load(rig.server.port)
    assert (await removed.call("GET", "/web/session"))[0] == 401
    assert (await Browser(rig).call("POST", "/web/login", {"code": unused}))[0] == 401
    assert (await stays.call("GET", "/web/session"))[0] == 200


async def test_nothing_that_opens_is_stored_or_logged(
    rig: ApiFixture, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    code = await code_for(rig)
    browser = Browser(rig)
    await browser.call("POST", "/web/login", {"code": code})
    secret = browser.secret
    await browser.call("GET", "/agents")
    async with browser.socket() as socket:
        await frame(socket, "welcome")
    rows = await rig.database.read(
        lambda r: [
            tuple(row)
            for table in ("web_codes", "web_sessions")
            for row in r.all(f"SELECT * FROM {table}")
        ]
    )
    assert len(rows) == 2
    for kept in (str(rows), caplog.text):
        assert code not in kept
        assert secret not in kept


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Host": "evil.example"}],
)
async def test_a_foreign_page_signs_nobody_in(rig: ApiFixture, headers: dict[str, str]) -> None:
    code = await code_for(rig)
    answer = await Browser(rig).call("POST", "/web/login", {"code": code}, headers=headers)
    assert answer[0] == 403
    assert (await Browser(rig).call("POST", "/web/login", {"code": code}))[0] == 200


async def test_no_link_puts_another_page_in_place_of_ones_own_unasked(rig: ApiFixture) -> None:
    browser = Browser(rig)
    await browser.sign_in()
    mine = browser.secret
    foreign = await code_for(rig, "uwe")
    status, problem, _ = await browser.call("POST", "/web/login", {"code": foreign})
    assert (status, problem["code"]) == (409, "other_session")
    assert (problem["signed_in"], problem["would_be"]) == ("operator", "uwe")
    assert browser.secret == mine
    assert (await browser.call("GET", "/web/session"))[1]["who"] == "operator"
    # One's own link asks nothing, the other one still opens for whoever wants it.
    assert (await browser.call("POST", "/web/login", {"code": await code_for(rig)}))[0] == 200
    assert (await browser.call("POST", "/web/login", {"code": foreign, "replace": True}))[0] == 200
    assert (await browser.call("GET", "/web/session"))[1]["who"] == "uwe"
    # The token neither; and an old link is told as such.
    assert (await browser.call("POST", "/web/login", {"token": OPERATOR_TOKEN}))[0] == 409
    assert (await browser.call("POST", "/web/login", {"code": foreign}))[0] == 401
    assert (await browser.call("GET", "/web/session"))[1]["who"] == "uwe"


# -- links -----------------------------------------------------------------------------------------


async def test_a_link_is_made_for_the_operator_or_a_person(rig: ApiFixture) -> None:
    status, document, _ = await rig.call("POST", "/web/links")
    assert (status, document["person"], document["role"]) == (200, None, "manager")
    assert document["url"] == f"{rig.url}/#code={document['code']}"
    _, document, _ = await rig.call("POST", "/web/links", {"person": "uwe"})
    browser = Browser(rig)
    _, session, _ = await browser.call("POST", "/web/login", {"code": document["code"]})
    assert (session["who"], session["role"], session["conversation"]) == ("uwe", "user", "uwe")
    assert session["may"] == ["look", "talk"]
    for base in (
        "foo",
        "https://elsewhere.example",
        f"{rig.url}/below",
        "//x",
        "http://u@localhost",
    ):
        status, document, _ = await rig.call("POST", "/web/links", {"base": base})
        assert (status, document["field"]) == (400, "base"), base
    assert (
        "allowed_hosts"
        in (await rig.call("POST", "/web/links", {"base": "https://elsewhere.example"}))[1][
            "detail"
        ]
    )
    _, document, _ = await rig.call("POST", "/web/links", {"base": f"{rig.url}/"})
    assert document["url"].startswith(f"{rig.url}/#code=")
    status, document, _ = await rig.call("POST", "/web/links", {"person": "nobody"})
    assert (status, document["field"]) == (400, "person")
    for person, wanted in ((None, 200), ("uwe", 200), ("ute", 403), ("otto", 403)):
        answer = await browser.call("POST", "/web/links", {"person": person})
        assert (answer[0], answer[1].get("person")) == (wanted, "uwe" if wanted == 200 else None)
    await browser.sign_in("otto")
    rig.people["mia"] = PersonRole.MANAGER
    for person, wanted in (("vera", 200), ("otto", 200), ("mia", 403), ("nobody", 400)):
        assert (await browser.call("POST", "/web/links", {"person": person}))[0] == wanted
    assert (await browser.call("POST", "/web/links"))[1]["person"] == "otto"
    status, document, _ = await browser.call("GET", "/web/people")
    assert {"name": "vera", "role": "viewer"} in document["people"]


async def test_a_link_says_why_a_phone_may_not_reach_it(rig: ApiFixture) -> None:
    _, document, _ = await rig.call("POST", "/web/links")
    assert (document["doubts"], document["qr"]) == (["here"], "")
    assert "--base" in document["warnings"][0]
    _, document, _ = await rig.call(
        "POST", "/web/links", {"base": "https://agents.example", "qr": True}
    )
    assert (document["doubts"], document["warnings"]) == ([], [])
    assert document["qr"].startswith("<svg ")
    _, document, _ = await rig.call("POST", "/web/links", {"base": "http://agents.example"})
    assert document["doubts"] == ["near", "open"]


# -- where the page is -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["localhost", "LOCALHOST", "[::1]"])
async def test_nobody_signs_in_where_another_program_may_answer(rig: ApiFixture, name: str) -> None:
    """A browser asks [::1] first for ``localhost``, and the daemon has 127.0.0.1 alone."""
    near = {"Host": f"{name}:{rig.server.port}"}
    browser = Browser(rig)
    for path in ("/", "/page/app.js"):
        async with rig.client.get(rig.url + path, headers=near, allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (307, rig.url + path)
            assert await answer.read() == b""
    for opens in ({"code": await code_for(rig)}, {"token": OPERATOR_TOKEN}):
        status, document, _ = await browser.call("POST", "/web/login", opens, headers=near)
        assert (status, document["reason"]) == (403, "host")
        assert rig.url in document["detail"]
    await browser.sign_in()
    assert (await browser.call("GET", "/agents", headers=near))[0] == 403
    near["Authorization"] = f"Bearer {OPERATOR_TOKEN}"
    async with rig.client.post(rig.url + "/web/links", headers=near) as answer:
        assert (await answer.json())["url"].startswith(f"{rig.url}/#code="), "programs go on"
    base = f"http://localhost:{rig.server.port}"
    status, document, _ = await rig.call("POST", "/web/links", {"base": base})
    assert (status, document["field"]) == (400, "base")


async def test_a_sign_in_ends_with_its_port(rig: ApiFixture) -> None:
    """Whoever takes the old port is sent what the tabs show that are open there."""
    browser = Browser(rig)
    await browser.sign_in()
    again = ApiServer(rig.deps, port=rig.server.port)
    elsewhere = ApiServer(rig.deps, port=0)
    former = rig.server.port
    await rig.server.close()
    port = await elsewhere.start()
    try:
        shown = {"Authorization": f"Bearer {browser.secret}"}
        for host in (f"127.0.0.1:{port}", f"127.0.0.1:{former}"):
            async with rig.client.get(
                f"{elsewhere.url}/web/session", headers={**shown, "Host": host}
            ) as answer:
                assert answer.status == 401
    finally:
        await elsewhere.close()
    await again.start()
    try:
        assert (await browser.call("GET", "/web/session"))[0] == 401, "not even back at that port"
    finally:
        await again.close()


async def test_a_sign_in_goes_on_at_its_own_port_and_at_no_other_name(rig: ApiFixture) -> None:
    again = ApiServer(replace(rig.deps, allowed_hosts=("box.lan",)), port=rig.server.port)
    await rig.server.close()
    await again.start()
    try:
        browser = Browser(rig)
        _, document, _ = await rig.call("POST", "/web/links")
        assert (await browser.call("POST", "/web/login", {"code": document["code"]}))[0] == 200
        assert (await browser.call("GET", "/agents"))[0] == 200
        there = {"Host": f"box.lan:{again.port}"}
        status, document, _ = await browser.call("GET", "/agents", headers=there)
        assert (status, document["reason"]) == (403, "host")
    finally:
        await again.close()
    third = ApiServer(rig.deps, port=again.port)
    await third.start()
    try:
        assert (await browser.call("GET", "/agents"))[0] == 200
    finally:
        await third.close()


# -- the secret ------------------------------------------------------------------------------------


@pytest.mark.parametrize("route", PAGE_ROUTES)
async def test_each_secret_on_each_route_of_the_page(rig: ApiFixture, route: ApiRoute) -> None:
    """Missing, forged: 401. As a cookie: 401. Below its role: 403. A foreign page: 403."""
    path = path_of(route)
    for secret in ("", "forged"):
        browser = Browser(rig)
        browser.secret = secret
        assert (await browser.call(route.method, path))[0] == 401
    for person, role in PEOPLE.items():
        browser = Browser(rig)
        await browser.sign_in(person)
        foreign: list[dict[str, str]] = [
            {"Origin": "http://evil.example"},
            {"Origin": f"http://127.0.0.1:{rig.server.port + 1}"},
            {"Origin": "null"},
            {"Host": "evil.example"},
        ]
        for headers in foreign:
            answer = await browser.call(route.method, path, headers=headers)
            assert answer[0] == 403, headers
        if role < BROWSER[route.access]:
            assert (await browser.call(route.method, path))[0] == 403, person
        browser.secret, secret = "", browser.secret
        for name in ("agentsup", "session", "Authorization", rig.deps.web.node_id):
            cookie = {"Cookie": f"{name}={secret}", "Origin": rig.url}
            assert (await browser.call(route.method, path, headers=cookie))[0] == 401, name


async def test_a_pages_secret_is_no_token(rig: ApiFixture) -> None:
    browser = Browser(rig)
    await browser.sign_in()
    for route in OTHERS:
        answer = await browser.call(route.method, path_of(route), headers={"Origin": rig.url})
        assert answer[0] == 401, (route.method, route.path)


async def test_what_a_server_on_another_port_is_sent_opens_nothing(rig: ApiFixture) -> None:
    """A browser sends all cookies of a host to each of its ports, and takes them from each."""
    victim, attacker = Browser(rig), Browser(rig)
    await attacker.sign_in("uwe")
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar) as http:
        code = await code_for(rig)
        async with http.post(f"{rig.url}/web/login", json={"code": code}) as response:
            victim.secret = (await response.json())["secret"]
        assert len(jar) == 0, "what is in the jar is sent to any port"
        # What another port has set goes with each request, and is not looked at.
        for name in ("agentsup", "session", "Authorization"):
            jar.update_cookies({name: attacker.secret}, URL(rig.url))
        sent = victim.headers(is_post=False)
        async with http.get(f"{rig.url}/web/session", headers=sent) as response:
            assert (await response.json())["who"] == "operator"
        assert len(response.request_info.headers["Cookie"].split("; ")) == 3
        async with http.get(f"{rig.url}/web/session") as response:
            assert response.status == 401


async def test_a_token_needs_no_origin(rig: ApiFixture) -> None:
    assert (await rig.call("POST", "/agents/worker/stop"))[0] == 200
    foreign = {"Origin": "http://evil.example"}
    assert (await rig.call("POST", "/agents/worker/stop", headers=foreign))[0] == 403


async def test_a_session_ends_when_it_is_not_used_and_at_the_latest_after_its_time(
    rig: ApiFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = Browser(rig)
    await browser.sign_in()
    for _ in range(8):  # used each 11 days, it outlives its idle time
        later(rig, monkeypatch, 11 * DAY_MS)
        assert (await browser.call("GET", "/agents"))[0] == 200
    later(rig, monkeypatch, 3 * DAY_MS)
    assert (await browser.call("GET", "/agents"))[0] == 401
    await browser.sign_in()
    later(rig, monkeypatch, 15 * DAY_MS)
    assert (await browser.call("GET", "/agents"))[0] == 401


async def test_sessions_survive_a_restart_and_ended_ones_do_not_come_back(rig: ApiFixture) -> None:
    kept, gone = Browser(rig), Browser(rig)
    await kept.sign_in("uwe")
    await gone.sign_in("uwe")
    await gone.call("POST", "/web/logout")
    again = books.WebSessions(
        database=rig.database,
        clock=rig.deps.clock,
        entropy=rig.deps.entropy,
        people=lambda: rig.people,
        operator_key=lambda: "another",
    )
    await again.load(rig.server.port)
    assert again.find(kept.secret) is not None
    assert len(again._sessions) == 1


async def test_a_new_operators_token_ends_the_operators_sessions(rig: ApiFixture) -> None:
    operator, person = Browser(rig), Browser(rig)
    await operator.sign_in()
    await person.sign_in("otto")
    again = books.WebSessions(
        database=rig.database,
        clock=rig.deps.clock,
        entropy=rig.deps.entropy,
        people=lambda: rig.people,
        operator_key=lambda: "another",
    )
    await again.load(rig.server.port)
    assert again.find(operator.secret) is None
    assert again.find(person.secret) is not None


async def test_who_leaves_people_or_loses_a_role_loses_it_at_once(rig: ApiFixture) -> None:
    browser = Browser(rig)
    await browser.sign_in("otto")
    assert (await browser.call("POST", "/agents/worker/stop"))[0] == 200
    rig.people["otto"] = PersonRole.USER
    assert (await browser.call("POST", "/agents/worker/stop"))[0] == 403
    del rig.people["otto"]
    assert (await browser.call("GET", "/agents"))[0] == 401


async def test_signing_out_here_and_everywhere(rig: ApiFixture) -> None:
    here, there, other = Browser(rig), Browser(rig), Browser(rig)
    for browser in (here, there):
        await browser.sign_in("uwe")
    await other.sign_in("ute")
    status, document, _ = await here.call("POST", "/web/logout")
    assert (status, document) == (200, {"success": True, "ended": 1})
    assert (await here.call("GET", "/agents"))[0] == 401
    unused = await code_for(rig, "uwe")
    await here.sign_in("uwe")
    status, document, _ = await there.call("POST", "/web/logout_everywhere")
    assert (status, document["ended"]) == (200, 2)
    assert (await here.call("GET", "/agents"))[0] == 401
    assert (await Browser(rig).call("POST", "/web/login", {"code": unused}))[0] == 401
    assert (await other.call("GET", "/agents"))[0] == 200


async def test_signing_in_anew_ends_the_former_session(rig: ApiFixture) -> None:
    browser = Browser(rig)
    await browser.sign_in("uwe")
    former = browser.secret
    await browser.sign_in("uwe")
    browser.secret = former
    assert (await browser.call("GET", "/agents"))[0] == 401


async def test_the_oldest_of_too_many_sessions_ends(
    rig: ApiFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(book_of(rig), "_limits", books.WebSessionLimits(sessions=2, codes=2))
    other = Browser(rig)
    await other.sign_in("ute")
    codes = []
    for person in ("ute", "uwe", "uwe", "uwe"):
        later(rig, monkeypatch, 1)
        codes.append(await code_for(rig, person))
    statuses = [
        (await Browser(rig).call("POST", "/web/login", {"code": code}))[0] for code in codes
    ]
    assert statuses == [200, 401, 200, 200], "the oldest of too many links ends as well"
    await book_of(rig).end_all("uwe")
    browsers = [Browser(rig) for _ in range(3)]
    for number, browser in enumerate(browsers):
        later(rig, monkeypatch, number)
        await browser.sign_in("uwe")
    statuses = [(await browser.call("GET", "/agents"))[0] for browser in browsers]
    assert statuses == [401, 200, 200]
    assert (await other.call("GET", "/agents"))[0] == 200


async def test_sockets_and_streams_end_with_their_session(rig: ApiFixture) -> None:
    browser = Browser(rig)
    await browser.sign_in("uwe")
    async with (
        browser.socket(conversation="uwe") as socket,
        rig.client.get(f"{rig.url}/events", headers=browser.headers(is_post=False)) as stream,
    ):
        await frame(socket, "welcome")
        assert stream.status == 200
        await book_of(rig).end_all("uwe")
        error = await frame(socket, "error")
        assert error["problem"]["status"] == 401
        while (await socket.receive()).type is aiohttp.WSMsgType.TEXT:
            pass
        assert socket.close_code == 4401
        with contextlib.suppress(aiohttp.ClientError, asyncio.IncompleteReadError):
            async with asyncio.timeout(BOUND_S):
                while await stream.content.readline():
                    pass


async def test_a_socket_needs_our_origin(rig: ApiFixture) -> None:
    browser = Browser(rig)
    await browser.sign_in()

    async def connect(**headers: str) -> Any:
        offered = ("agentsup", f"bearer.{browser.secret}")
        async with rig.client.ws_connect(
            f"{rig.url}/ws", headers=headers, protocols=offered
        ) as socket:
            return socket.protocol

    for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}):
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await connect(**headers)
        assert caught.value.status == 403
    assert await connect(Origin=rig.url) == "agentsup", "the secret is not said back"


@pytest.mark.parametrize(
    "offered",
    ["", "agentsup", "bearer.{}", "agentsup, {}", "agentsup, bearer.", "agentsup, bearer.{}, x"],
)
async def test_a_socket_offers_its_secret_in_one_way(rig: ApiFixture, offered: str) -> None:
    browser = Browser(rig)
    await browser.sign_in()
    sent = {"Origin": rig.url, "Sec-WebSocket-Protocol": offered.format(browser.secret)}
    with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
        async with rig.client.ws_connect(f"{rig.url}/ws", headers=sent):
            pass
    assert caught.value.status == 401
