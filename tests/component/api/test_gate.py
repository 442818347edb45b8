"""Every refusal in its order (P7, the predecessor's D7); who may use a route is in test_who_sees."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import socket

import aiohttp
import pytest
from multidict import CIMultiDict

from agentsup.api.http.access_log import Refusals
from agentsup.api.http.gate import SECURITY_HEADERS
from agentsup.api.http.route import ApiRoute
from agentsup.api.server.listener import ROUTES
from tests.component.api.conftest import OPERATOR_TOKEN, ApiFixture
from tests.support.bound import BOUND_S

HARMLESS = {
    "name": "nobody",
    "id": "nothing",
    "outbox_id": "0",
    "number": "0",
    "language": "de",
    "token": "nothing",
}


def path_of(route: ApiRoute) -> str:
    return route.path.format(**HARMLESS)


async def status(rig: ApiFixture, route: ApiRoute, token: str | None, **headers: str) -> int:
    """Status of a request that would do nothing if it were let in: no body, or unknown names."""
    sent = {"Authorization": f"Bearer {token}"} if token else {}
    async with rig.client.request(
        route.method, rig.url + path_of(route), headers={**sent, **headers}
    ) as response:
        return response.status


async def test_foreign_pages_and_rebound_names_get_nothing(rig: ApiFixture) -> None:
    port = rig.server.port
    foreign = (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": f"http://127.0.0.1:{port + 1}"},
        {"Origin": f"http://127.0.0.1:{port}.evil.example"},
        {"Host": "evil.example"},
        {"Host": f"evil.example:{port}"},
        {"Host": f"127.0.0.1:{port + 1}"},
        {"Host": "agents.example.evil"},
        {"Host": "other.example"},
    )
    for route in ROUTES:
        for headers in foreign:
            got = await status(rig, route, "operator-token-of-the-test", **headers)
            assert got == 403, (route.method, route.path, headers)


async def test_a_refused_name_is_told_with_the_setting_that_mends_it(rig: ApiFixture) -> None:
    for header, value in (("Host", "host.docker.internal:8780"), ("Origin", "http://my.page:81")):
        headers = {header: value, "Authorization": f"Bearer {OPERATOR_TOKEN}"}
        async with rig.client.get(f"{rig.url}/agents", headers=headers) as response:
            said = (await response.json())["detail"]
        assert value in said
        assert "api.allowed_hosts" in said


async def test_refused_requests_take_one_line_a_minute_with_the_beginning_of_their_path(
    rig: ApiFixture, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for number in range(20):
        url = f"{rig.url}/{number}{'x' * 4000}"
        async with rig.client.get(url, headers={"Authorization": "Bearer no"}) as response:
            assert response.status in (401, 404)
    lines = [each for each in caplog.messages if "xxx" in each]
    assert len(lines) == 1
    assert len(lines[0]) < 400


def test_the_refusals_of_a_caller_are_counted_in_its_next_line() -> None:
    refusals = Refusals()
    assert refusals.line_of("a", 0.0) == ""
    assert [refusals.line_of("a", at) for at in (1.0, 30.0, 59.0)] == [None] * 3
    assert refusals.line_of("b", 2.0) == ""
    assert "3 more of a" in str(refusals.line_of("a", 60.0))
    for number in range(1000):
        refusals.line_of(f"c{number}", 61.0)
    assert len(refusals._callers) <= 256


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:{port}",
        "LOCALHOST:{port}",
        "[::1]:{port}",
        "agents.example",
        "agents.example:1",
        "other.example:9000",
    ],
)
async def test_our_names_are_served(rig: ApiFixture, host: str) -> None:
    host = host.format(port=rig.server.port)
    for origin in ({}, {"Origin": f"http://{host.lower()}"}):
        got, document, _ = await rig.call(
            "GET", "/interagent/agents", headers={"Host": host, **origin}
        )
        assert (got, document) == (200, {"agents": ["Scout", "main", "worker"]})


async def test_tokens_end_with_their_agent_and_run(rig: ApiFixture) -> None:
    run = rig.tokens.issue_run("agt_worker", "worker", "msg_1")
    assert (await rig.call("GET", "/interagent/agents", token=run))[0] == 200
    rig.tokens.revoke(run)
    got, document, headers = await rig.call("GET", "/interagent/agents", token=run)
    assert got == 401
    assert document["code"] == "unauthorised"
    assert headers["WWW-Authenticate"] == 'Bearer realm="agentsup", error="invalid_token"'
    rig.tokens.revoke_agent("agt_worker")
    assert (await rig.call("GET", "/interagent/agents", token=rig.agent_tokens["worker"]))[0] == 401


@pytest.mark.parametrize(
    "method, path, wanted",
    [("GET", "/nowhere", 404), ("DELETE", "/agents", 405), ("PUT", "/interagent/send", 405)],
)
async def test_a_token_is_asked_for_before_anything_is_told(
    rig: ApiFixture, method: str, path: str, wanted: int
) -> None:
    got, document, headers = await rig.call(method, path, token=None)
    assert got == document["status"] == 401
    assert headers["WWW-Authenticate"] == 'Bearer realm="agentsup"'
    got, document, headers = await rig.call(method, path)
    assert got == document["status"] == wanted
    assert headers["Content-Type"] == "application/problem+json"
    if wanted == 405:
        assert headers["Allow"]


@pytest.mark.parametrize(
    "value",
    [
        f"Basic {OPERATOR_TOKEN}",
        f"Token {OPERATOR_TOKEN}",
        OPERATOR_TOKEN,
        "Bearer wrong",
        "Bearer wröng",
    ],
)
async def test_only_a_known_bearer_is_a_token(rig: ApiFixture, value: str) -> None:
    got, _, _ = await rig.call("GET", "/agents", token=None, headers={"Authorization": value})
    assert got == 401


@pytest.mark.parametrize(
    "media",
    ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1", None],
)
async def test_a_post_must_be_json(rig: ApiFixture, media: str | None) -> None:
    head = f"POST /interagent/send_async HTTP/1.1\r\nHost: 127.0.0.1:{rig.server.port}\r\n"
    head += f"Content-Type: {media}\r\n" if media else ""
    body = '{"to":"worker","message":"do it"}'
    assert await raw(rig, head, body, token=False) == 401
    assert await raw(rig, head, body, token=True) == 415
    assert await rig.mailbox.messages.list() == []


async def raw(rig: ApiFixture, head: str, body: str, *, token: bool) -> int:
    """Status of a request written by hand."""
    if token:
        head += "Authorization: Bearer operator-token-of-the-test\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", rig.server.port)
    try:
        writer.write(
            f"{head}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        line = await reader.readline()
        await reader.read()
        return int(line.split()[1])
    finally:
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("hosts", [(), ("evil.example",), ("{own}", "evil.example")])
async def test_a_missing_or_doubled_host_is_refused(
    rig: ApiFixture, hosts: tuple[str, ...]
) -> None:
    own = f"127.0.0.1:{rig.server.port}"
    head = "GET /interagent/agents HTTP/1.1\r\n"
    head += "".join(f"Host: {host.format(own=own)}\r\n" for host in hosts)
    assert await raw(rig, head, "", token=True) in (400, 403)


async def test_an_action_without_a_body_needs_no_content_type(rig: ApiFixture) -> None:
    head = f"POST /agents/worker/stop HTTP/1.1\r\nHost: 127.0.0.1:{rig.server.port}\r\n"
    assert await raw(rig, head, "", token=True) == 200
    assert await raw(rig, head, '{"x":1}', token=True) == 415
    assert await raw(rig, head + "Content-Type: text/plain\r\n", "", token=True) == 415
    assert rig.control.calls == [("stop", "worker", "operator")]


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_over_a_mebibyte_is_413(rig: ApiFixture, chunked: bool) -> None:
    frame = b'{"to":"worker","message":"%s"}'
    room = 1024 * 1024 - len(frame) + 2

    async def pieces(body: bytes):  # type: ignore[no-untyped-def]  # an async generator of bytes
        for start in range(0, len(body), 65536):
            yield body[start : start + 65536]

    document: dict[str, object] = {}
    for size, wanted in ((room, 202), (room + 1, 413)):
        body = frame % (b"x" * size)
        got, document, _ = await rig.call(
            "POST",
            "/interagent/send_async",
            data=pieces(body) if chunked else io.BytesIO(body),
            headers={"Content-Type": "application/json"},
        )
        assert got == wanted
    assert document["code"] == "too_large"
    assert document["limit"] == 1024 * 1024
    assert len(await rig.mailbox.messages.list()) == 1


@pytest.mark.parametrize(
    "path, body",
    [
        ("/interagent/send", {"to": "worker", "message": "x"}),
        ("/interagent/send_async", {"to": "worker", "message": "x"}),
        ("/messages/m/replay", None),
        ("/dead/m/requeue", None),
        ("/agents/worker/start", None),
        ("/agents/worker/restart", None),
    ],
)
async def test_while_draining_no_work_is_taken_and_reads_are_served(
    rig: ApiFixture, path: str, body: dict[str, str] | None
) -> None:
    rig.control.is_draining = True
    got, document, headers = await rig.call("POST", path, body)
    assert (got, document["code"]) == (503, "not_ready")
    assert int(headers["Retry-After"]) > 0
    assert (await rig.call("POST", path, body, token=None))[0] == 401
    assert (await rig.call("GET", "/agents"))[0] == 200
    assert (await rig.call("POST", "/stop_all"))[0] == 200
    assert (await rig.call("GET", "/readyz", token=None))[0] == 503
    assert (await rig.call("GET", "/healthz", token=None))[0] == 200
    assert await rig.mailbox.messages.list() == []


async def test_every_answer_carries_the_headers_that_browsers_obey(rig: ApiFixture) -> None:
    for path in ("/healthz", "/agents", "/nowhere"):
        _, _, headers = await rig.call("GET", path)
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Frame-Options"] == "DENY"
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert headers["Cache-Control"] == "no-store"
        assert headers["Server"] == "agentsup"
        assert headers["X-Request-Id"].startswith("req_")
        assert "Access-Control-Allow-Origin" not in headers


MALFORMED = (
    "GET /agents HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {secret}\x01\r\n\r\n",
    "GET /agents HTTP/1.1\r\nHost: {host}\r\nAuthorization Bearer {secret}\r\n\r\n",
    "GET /agents HTTP/1.1\r\nHost: {host}\r\n Authorization: Bearer {secret}\r\n\r\n",
    "GET /agents HTTP/1.1\r\nHost: {host}\r\nX-{secret}\r\n\r\n",
    "GET /agents?{secret} HTTP/9.9x\r\nHost: {host}\r\n\r\n",
    "{secret} /agents\r\n\r\n",
    "GET /agents HTTP/1.1\r\nHost: {host}\r\nContent-Length: {secret}\r\n\r\n",
    "GET /agents HTTP/1.1\r\nHost: {host}\r\nX-Long: {secret}" + "x" * 9000 + "\r\n\r\n",
)


async def raw_answer(rig: ApiFixture, sent: str) -> tuple[int, CIMultiDict[str], str]:
    """Status, headers and body of the answer to bytes written by hand."""
    reader, writer = await asyncio.open_connection("127.0.0.1", rig.server.port)
    try:
        writer.write(sent.encode("latin-1"))
        async with asyncio.timeout(BOUND_S):
            answer = (await reader.read()).decode("latin-1")
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
    head, _, body = answer.partition("\r\n\r\n")
    first, *lines = head.split("\r\n")
    headers = CIMultiDict((name, value) for name, _, value in (x.partition(": ") for x in lines))
    return int(first.split()[1]), headers, body


@pytest.mark.parametrize("sent", MALFORMED)
async def test_a_request_that_is_none_is_refused_without_an_echo(
    rig: ApiFixture, sent: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither the answer nor the log repeats what was sent: it may hold a secret."""
    caplog.set_level(logging.DEBUG)
    host = f"127.0.0.1:{rig.server.port}"
    status, headers, body = await raw_answer(rig, sent.format(host=host, secret=OPERATOR_TOKEN))
    assert status == 400
    assert json.loads(body)["code"] == "bad_request"
    assert OPERATOR_TOKEN not in body
    for name, value in SECURITY_HEADERS.items():
        assert headers[name] == value
    assert OPERATOR_TOKEN not in caplog.text
    assert "Traceback" not in caplog.text
    assert "malformed" in caplog.text


async def test_a_body_that_breaks_off_its_form_is_refused_without_an_echo(
    rig: ApiFixture, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    head = (
        f"POST /stop_all HTTP/1.1\r\nHost: 127.0.0.1:{rig.server.port}\r\n"
        f"Authorization: Bearer {OPERATOR_TOKEN}\r\nContent-Type: application/json\r\n"
        "Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    status, _, body = await raw_answer(rig, f"{head}zz{OPERATOR_TOKEN}\r\n\r\n")
    assert status == 400
    assert OPERATOR_TOKEN not in body
    assert OPERATOR_TOKEN not in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("offered", ["bearer.{}", "bearer.{}, other", "other"])
async def test_a_socket_with_other_subprotocols_is_refused_and_they_are_not_logged(
    rig: ApiFixture, offered: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    sent = {
        "Authorization": f"Bearer {OPERATOR_TOKEN}",
        "Sec-WebSocket-Protocol": offered.format(OPERATOR_TOKEN),
    }
    with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
        async with rig.client.ws_connect(f"{rig.url}/ws", headers=sent):
            pass
    assert caught.value.status == 400
    assert OPERATOR_TOKEN not in caplog.text
    assert "overlap" not in caplog.text


async def test_a_defect_becomes_a_problem_that_names_its_log_line(
    rig: ApiFixture, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken() -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(rig.control, "agents", broken)
    got, document, headers = await rig.call("GET", "/agents")
    assert (got, document["code"], document["success"]) == (500, "internal", False)
    assert document["request_id"] == headers["X-Request-Id"]
    assert "secret detail" not in str(document)
    assert any(document["request_id"] in record.getMessage() for record in caplog.records)


async def test_a_taken_port_is_named_with_what_to_do(rig: ApiFixture) -> None:
    from agentsup.api.server import ApiServer
    from agentsup.model.errors import ConfigError

    second = ApiServer(rig.deps, port=rig.server.port)
    with pytest.raises(ConfigError) as caught:
        await second.start()
    assert str(rig.server.port) in str(caught.value)
    assert "--port" in str(caught.value)
    assert caught.value.field == "api.port"
    await second.close()


async def test_an_address_of_another_machine_is_named(rig: ApiFixture) -> None:
    from agentsup.api.server import ApiServer
    from agentsup.model.errors import ConfigError

    with pytest.raises(ConfigError) as caught:
        await ApiServer(rig.deps, host="203.0.113.7", port=0).start()
    assert caught.value.field == "api.bind"


async def test_after_close_nothing_listens(rig: ApiFixture) -> None:
    await rig.server.close()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", rig.server.port)) != 0


# -- a browser under a name that is not ours -------------------------------------------------------

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


async def shown_at(rig: ApiFixture, host: str, **headers: str) -> tuple[int, str, str]:
    async with rig.client.get(f"{rig.url}/", headers={"Host": host, **headers}) as response:
        return response.status, response.content_type, await response.text()


async def test_a_browser_with_a_wrong_name_reads_which_setting_to_change(rig: ApiFixture) -> None:
    status, media, text = await shown_at(rig, "laptop.tail1234.ts.net", **BROWSER)
    assert (status, media) == (403, "text/html")
    assert "allowed_hosts = [&quot;laptop.tail1234.ts.net&quot;]" in text
    assert "config.toml" in text
    assert "close this page" in text
    assert "<script" not in text
    spoken = {**BROWSER, "Accept-Language": "de-AT,de;q=0.9"}
    assert "schließe diese Seite" in (await shown_at(rig, "[fd00::7]:8799", **spoken))[2]
    assert "[fd00::7]" in (await shown_at(rig, "[fd00::7]:8799", **spoken))[2]


async def test_programs_with_a_wrong_name_get_a_problem_document(rig: ApiFixture) -> None:
    for headers in ({}, {"Accept": "application/json"}, {"Accept": "*/*"}):
        status, media, text = await shown_at(rig, "laptop.example", **headers)
        assert (status, media) == (403, "application/problem+json"), headers
        assert json.loads(text)["reason"] == "host"
    async with rig.client.post(
        f"{rig.url}/web/login", json={"token": "x"}, headers={**BROWSER, "Host": "laptop.example"}
    ) as response:
        assert response.content_type == "application/problem+json"


@pytest.mark.parametrize(
    "host",
    [
        "<script>alert(1)</script>",
        '"><img src=x>',
        "a'b.example",
        "evil.example/path",
        "x" * 400,
        "{what}.example",
        "evil.example:99999999",
        "[::1]<b>",
        "-a.example",
    ],
)
async def test_a_hostile_name_is_not_repeated(rig: ApiFixture, host: str) -> None:
    status, media, text = await shown_at(rig, host, **BROWSER)
    assert host not in text
    if media == "text/html":  # else the parser refused it before
        assert status == 403
        assert "allowed_hosts = [&quot;agents.home.example&quot;]" in text
