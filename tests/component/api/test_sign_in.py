"""Signing in to the page: links used once, cookies that end, and nobody else's page let in (P7)."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import aiohttp
import pytest

from agentsup.api.access import BROWSER, Access
from agentsup.api.app import ROUTES
from agentsup.api.route import Route
from agentsup.api.web import book as books
from agentsup.model.errors import AgentsupError
from agentsup.model.principal import PersonRole
from tests.component.api.browser import Browser, book_of, frame
from tests.component.api.conftest import OPERATOR_TOKEN, PEOPLE, Rig

HARMLESS = {
    "name": "nobody",
    "id": "nothing",
    "outbox_id": "0",
    "number": "0",
    "language": "de",
}
PAGE_ROUTES = [pytest.param(r, id=f"{r.method} {r.path}") for r in ROUTES if r.access in BROWSER]
OTHERS = [
    pytest.param(r, id=f"{r.method} {r.path}")
    for r in ROUTES
    if r.access in (Access.ANY, Access.OPERATOR)
]
DAY_MS = 86_400_000


def path_of(route: Route) -> str:
    return route.path.format(**HARMLESS)


async def code_for(rig: Rig, person: str = "") -> str:
    return (await book_of(rig).issue(person)).code


def later(rig: Rig, monkeypatch: pytest.MonkeyPatch, ms: int) -> None:
    now_ms = rig.deps.clock.now_ms
    monkeypatch.setattr(book_of(rig)._clock, "now_ms", lambda: now_ms() + ms)


# -- the exchange ----------------------------------------------------------------------------------


async def test_a_link_opens_one_browser_once(rig: Rig) -> None:
    code = await code_for(rig)
    first, second = Browser(rig), Browser(rig)
    status, document, headers = await first.call("POST", "/web/login", {"code": code})
    assert (status, document["who"], document["may"]) == (
        200,
        "operator",
        ["look", "talk", "steer"],
    )
    (cookie,) = headers["Set-Cookie"].split("\n")
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert "Path=/" in cookie
    assert "Secure" not in cookie
    assert code not in str(document) + cookie
    assert (await first.call("GET", "/web/session"))[0] == 200
    status, document, headers = await second.call("POST", "/web/login", {"code": code})
    assert (status, document["code"]) == (401, "login_failed")
    assert "Set-Cookie" not in headers
    assert (await second.call("GET", "/web/session"))[0] == 401
    assert (await first.call("GET", "/web/session"))[0] == 200


async def test_of_two_exchanges_at_once_one_wins(rig: Rig) -> None:
    code = await code_for(rig)
    answers = await asyncio.gather(
        *(Browser(rig).call("POST", "/web/login", {"code": code}) for _ in range(6))
    )
    assert sorted(status for status, _, _ in answers) == [200, 401, 401, 401, 401, 401]


async def test_a_link_ends_after_ten_minutes(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    in_time, late = await code_for(rig), await code_for(rig)
    later(rig, monkeypatch, 599_000)
    assert (await Browser(rig).call("POST", "/web/login", {"code": in_time}))[0] == 200
    later(rig, monkeypatch, 2_000)
    assert (await Browser(rig).call("POST", "/web/login", {"code": late}))[0] == 401


async def test_the_operators_token_opens_too_and_no_other(rig: Rig) -> None:
    browser = Browser(rig)
    run = rig.tokens.issue_run("agt_worker", "worker", "msg_1")
    for wrong in ("wrong", "wröng", rig.agent_tokens["main"], run):
        assert (await browser.call("POST", "/web/login", {"token": wrong}))[0] == 401
    status, document, _ = await browser.call("POST", "/web/login", {"token": OPERATOR_TOKEN})
    assert (status, document["is_operator"]) == (200, True)
    assert OPERATOR_TOKEN not in str(browser.cookies)
    for body in ({}, {"code": "x", "token": "y"}, {"code": ""}, {"password": "x"}):
        assert (await Browser(rig).call("POST", "/web/login", body))[0] == 400


async def test_guessing_is_slowed_down_and_stops_nobody_else(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
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


async def test_failures_are_counted_by_address_and_in_all(rig: Rig) -> None:
    book = book_of(rig)

    async def code(address: str) -> str:
        with pytest.raises(AgentsupError) as refused:
            await book.redeem("guess", address)
        return refused.value.code

    assert [await code("a") for _ in range(11)] == ["login_failed"] * 10 + ["overloaded"]
    assert await code("b") == "login_failed"
    assert [await code(f"c{n}") for n in range(89)] == ["login_failed"] * 88 + ["overloaded"]


async def test_who_was_removed_does_not_come_back_by_an_old_cookie(rig: Rig) -> None:
    browser = Browser(rig)
    await browser.sign_in("uwe")
    unused = await code_for(rig, "uwe")
    role = rig.people.pop("uwe")
    rig.server.people_changed()
    rig.people["uwe"] = role
    rig.server.people_changed()
    assert (await browser.call("GET", "/web/session"))[0] == 401
    assert (await Browser(rig).call("POST", "/web/login", {"code": unused}))[0] == 401
    await book_of(rig).load()
    assert (await browser.call("GET", "/web/session"))[0] == 401


async def test_who_was_removed_meanwhile_is_forgotten_at_start(rig: Rig) -> None:
    removed, stays = Browser(rig), Browser(rig)
    await removed.sign_in("uwe")
    await stays.sign_in("ute")
    unused = await code_for(rig, "uwe")
    role = rig.people.pop("uwe")
    await book_of(rig).load()
    rig.people["uwe"] = role
    await book_of(rig).load()
    assert (await removed.call("GET", "/web/session"))[0] == 401
    assert (await Browser(rig).call("POST", "/web/login", {"code": unused}))[0] == 401
    assert (await stays.call("GET", "/web/session"))[0] == 200


async def test_nothing_that_opens_is_stored_or_logged(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    code = await code_for(rig)
    browser = Browser(rig)
    await browser.call("POST", "/web/login", {"code": code})
    (secret,) = browser.cookies.values()
    await browser.call("GET", "/agents")
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


async def test_behind_https_the_cookie_is_secure(rig: Rig) -> None:
    code = await code_for(rig)
    headers = {"Host": "agents.example", "Origin": "https://agents.example"}
    status, _, sent = await Browser(rig).call("POST", "/web/login", {"code": code}, headers=headers)
    assert status == 200
    assert "; Secure" in sent["Set-Cookie"]


@pytest.mark.parametrize(
    "headers, without",
    [
        ({"Origin": "http://evil.example"}, ()),
        ({"Origin": "null"}, ()),
        ({}, ("Origin",)),
        ({"Host": "evil.example"}, ()),
    ],
)
async def test_a_foreign_page_signs_nobody_in(
    rig: Rig, headers: dict[str, str], without: tuple[str, ...]
) -> None:
    code = await code_for(rig)
    answer = await Browser(rig).call(
        "POST", "/web/login", {"code": code}, headers=headers, without=without
    )
    assert answer[0] == 403
    assert (await Browser(rig).call("POST", "/web/login", {"code": code}))[0] == 200


async def test_no_link_puts_another_page_in_place_of_ones_own_unasked(rig: Rig) -> None:
    browser = Browser(rig)
    await browser.sign_in()
    (mine,) = browser.cookies.values()
    foreign = await code_for(rig, "uwe")
    status, problem, headers = await browser.call("POST", "/web/login", {"code": foreign})
    assert (status, problem["code"]) == (409, "other_session")
    assert (problem["signed_in"], problem["would_be"]) == ("operator", "uwe")
    assert "Set-Cookie" not in headers
    assert [*browser.cookies.values()] == [mine]
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


async def test_a_link_is_made_for_the_operator_or_a_person(rig: Rig) -> None:
    status, document, _ = await rig.call("POST", "/web/links")
    assert (status, document["person"], document["role"]) == (200, None, "manager")
    assert document["url"] == f"{rig.url}/#code={document['code']}"
    _, document, _ = await rig.call("POST", "/web/links", {"person": "uwe"})
    browser = Browser(rig)
    _, session, _ = await browser.call("POST", "/web/login", {"code": document["code"]})
    assert (session["who"], session["role"], session["conversation"]) == ("uwe", "user", "uwe")
    assert session["may"] == ["look", "talk"]
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


# -- the cookie ------------------------------------------------------------------------------------


@pytest.mark.parametrize("route", PAGE_ROUTES)
async def test_each_cookie_on_each_route_of_the_page(rig: Rig, route: Route) -> None:
    """Missing, forged, of nobody any more: 401. Below its role: 403. A foreign page: 403."""
    path, post = path_of(route), route.method == "POST" or 101 in route.answers
    origin = {"Origin": rig.url} if post else {}
    name = book_of(rig).cookie
    for cookies in ({}, {name: "forged"}, {"agentsup_other": "x"}):
        browser = Browser(rig)
        browser.cookies = dict(cookies)
        assert (await browser.call(route.method, path, headers=origin))[0] == 401
    for person, role in PEOPLE.items():
        browser = Browser(rig)
        await browser.sign_in(person)
        foreign: list[dict[str, str]] = [
            {"Origin": "http://evil.example"},
            {"Origin": f"http://127.0.0.1:{rig.server.port + 1}"},
            {"Origin": "null"},
            {"Host": "evil.example"},
            {"Sec-Fetch-Site": "same-site"},
            {"Sec-Fetch-Site": "cross-site"},
        ]
        for headers in foreign:
            answer = await browser.call(route.method, path, headers={**origin, **headers})
            assert answer[0] == 403, headers
        if post:
            answer = await browser.call(route.method, path, without=("Origin",))
            assert (answer[0], answer[1]["reason"]) == (403, "origin")
        if role >= BROWSER[route.access]:
            continue
        assert (await browser.call(route.method, path, headers=origin))[0] == 403, person


@pytest.mark.parametrize("route", OTHERS)
async def test_a_cookie_is_no_token(rig: Rig, route: Route) -> None:
    browser = Browser(rig)
    await browser.sign_in()
    answer = await browser.call(route.method, path_of(route), headers={"Origin": rig.url})
    assert answer[0] == 401


async def test_a_wrong_token_is_not_made_good_by_a_cookie(rig: Rig) -> None:
    browser = Browser(rig)
    await browser.sign_in()
    assert (await browser.call("GET", "/agents"))[0] == 200
    wrong = {"Authorization": "Bearer wrong"}
    assert (await browser.call("GET", "/agents", headers=wrong))[0] == 401


async def test_a_token_needs_no_origin(rig: Rig) -> None:
    assert (await rig.call("POST", "/agents/worker/stop"))[0] == 200
    foreign = {"Origin": "http://evil.example"}
    assert (await rig.call("POST", "/agents/worker/stop", headers=foreign))[0] == 403


async def test_a_session_ends_when_it_is_not_used_and_at_the_latest_after_its_time(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
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


async def test_sessions_survive_a_restart_and_ended_ones_do_not_come_back(rig: Rig) -> None:
    kept, gone = Browser(rig), Browser(rig)
    await kept.sign_in("uwe")
    await gone.sign_in("uwe")
    await gone.call("POST", "/web/logout")
    again = books.WebBook(
        database=rig.database,
        clock=rig.deps.clock,
        entropy=rig.deps.entropy,
        people=lambda: rig.people,
        operator_key=lambda: "another",
        node_id="node",
    )
    await again.load()
    assert again.cookie == book_of(rig).cookie
    assert again.find(next(iter(kept.cookies.values()))) is not None
    assert len(again._sessions) == 1


async def test_a_new_operators_token_ends_the_operators_sessions(rig: Rig) -> None:
    operator, person = Browser(rig), Browser(rig)
    await operator.sign_in()
    await person.sign_in("otto")
    again = books.WebBook(
        database=rig.database,
        clock=rig.deps.clock,
        entropy=rig.deps.entropy,
        people=lambda: rig.people,
        operator_key=lambda: "another",
        node_id="node",
    )
    await again.load()
    assert again.find(next(iter(operator.cookies.values()))) is None
    assert again.find(next(iter(person.cookies.values()))) is not None


async def test_who_leaves_people_or_loses_a_role_loses_it_at_once(rig: Rig) -> None:
    browser = Browser(rig)
    await browser.sign_in("otto")
    assert (await browser.call("POST", "/agents/worker/stop"))[0] == 200
    rig.people["otto"] = PersonRole.USER
    assert (await browser.call("POST", "/agents/worker/stop"))[0] == 403
    del rig.people["otto"]
    assert (await browser.call("GET", "/agents"))[0] == 401


async def test_signing_out_here_and_everywhere(rig: Rig) -> None:
    here, there, other = Browser(rig), Browser(rig), Browser(rig)
    for browser in (here, there):
        await browser.sign_in("uwe")
    await other.sign_in("ute")
    stolen = dict(here.cookies)
    status, document, _ = await here.call("POST", "/web/logout")
    assert (status, document, here.cookies) == (200, {"success": True, "ended": 1}, {})
    here.cookies = stolen
    assert (await here.call("GET", "/agents"))[0] == 401
    unused = await code_for(rig, "uwe")
    await here.sign_in("uwe")
    status, document, _ = await there.call("POST", "/web/logout_everywhere")
    assert (status, document["ended"]) == (200, 2)
    assert (await here.call("GET", "/agents"))[0] == 401
    assert (await Browser(rig).call("POST", "/web/login", {"code": unused}))[0] == 401
    assert (await other.call("GET", "/agents"))[0] == 200


async def test_signing_in_anew_ends_the_former_session(rig: Rig) -> None:
    browser = Browser(rig)
    await browser.sign_in("uwe")
    former = dict(browser.cookies)
    await browser.sign_in("uwe")
    browser.cookies = former
    assert (await browser.call("GET", "/agents"))[0] == 401


async def test_the_oldest_of_too_many_sessions_ends(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(book_of(rig), "_limits", books.BookLimits(sessions=2, codes=2))
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


async def test_sockets_and_streams_end_with_their_session(rig: Rig) -> None:
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
            async with asyncio.timeout(5):
                while await stream.content.readline():
                    pass


async def test_a_socket_needs_our_origin(rig: Rig) -> None:
    browser = Browser(rig)
    await browser.sign_in()

    async def connect(**headers: str) -> Any:
        sent = {**browser.headers(is_post=False), **headers}
        async with rig.client.ws_connect(f"{rig.url}/ws", headers=sent):
            return "open"

    for headers in ({}, {"Origin": "http://evil.example"}, {"Origin": "null"}):
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await connect(**headers)
        assert caught.value.status == 403
    assert await connect(Origin=rig.url) == "open"
