"""Every credential on every route, and every refusal in its order (P7, the predecessor's D7)."""

from __future__ import annotations

import io
import socket

import pytest

from agentsup.api.access import Access
from agentsup.api.app import ROUTES
from agentsup.api.route import Route
from tests.component.api.conftest import Rig

PATHS = [pytest.param(r, id=f"{r.method} {r.path}") for r in ROUTES]
HARMLESS = {
    "name": "nobody",
    "id": "nothing",
    "outbox_id": "0",
    "number": "0",
    "language": "de",
    "token": "nothing",
}
EASY = (Access.OPEN, Access.ANY)


def path_of(route: Route) -> str:
    return route.path.format(**HARMLESS)


async def status(rig: Rig, route: Route, token: str | None, **headers: str) -> int:
    """Status of a request that would do nothing if it were let in: no body, or unknown names."""
    sent = {"Authorization": f"Bearer {token}"} if token else {}
    async with rig.client.request(
        route.method, rig.url + path_of(route), headers={**sent, **headers}
    ) as response:
        return response.status


@pytest.mark.parametrize("route", PATHS)
async def test_each_credential_on_each_route(rig: Rig, route: Route) -> None:
    run = rig.tokens.issue_run("agt_worker", "worker", "msg_1")
    is_open = route.access is Access.OPEN
    for token in (None, "wrong", "wröng"):
        got = await status(rig, route, token)
        # A sign-in without Origin is no browser's; the page may not be part of the package.
        opened = (403,) if route.method == "POST" else (200, 404)
        wanted = opened if is_open else (401,)
        assert got in wanted, (token, got)
    for token in (rig.agent_tokens["worker"], run):
        got = await status(rig, route, token)
        let_in = route.access in EASY or (route.access is Access.RUN and token == run)
        assert (got not in (401, 403)) if let_in else (got == 403), got
    got = await status(rig, route, "operator-token-of-the-test")
    assert (got == 403) if route.access is Access.RUN else (got not in (401, 403))


@pytest.mark.parametrize("route", PATHS)
async def test_foreign_pages_and_rebound_names_get_nothing(rig: Rig, route: Route) -> None:
    port = rig.server.port
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": f"http://127.0.0.1:{port + 1}"},
        {"Origin": f"http://127.0.0.1:{port}.evil.example"},
        {"Host": "evil.example"},
        {"Host": f"evil.example:{port}"},
        {"Host": f"127.0.0.1:{port + 1}"},
        {"Host": "agents.example.evil"},
        {"Host": "other.example"},
    ):
        assert await status(rig, route, "operator-token-of-the-test", **headers) == 403, headers


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
async def test_our_names_are_served(rig: Rig, host: str) -> None:
    host = host.format(port=rig.server.port)
    for origin in ({}, {"Origin": f"http://{host.lower()}"}):
        got, document, _ = await rig.call(
            "GET", "/interagent/agents", headers={"Host": host, **origin}
        )
        assert (got, document) == (200, {"agents": ["Scout", "main", "worker"]})


async def test_tokens_end_with_their_agent_and_run(rig: Rig) -> None:
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
    rig: Rig, method: str, path: str, wanted: int
) -> None:
    got, document, headers = await rig.call(method, path, token=None)
    assert got == document["status"] == 401
    assert headers["WWW-Authenticate"] == 'Bearer realm="agentsup"'
    got, document, headers = await rig.call(method, path)
    assert got == document["status"] == wanted
    assert headers["Content-Type"] == "application/problem+json"
    if wanted == 405:
        assert headers["Allow"]


@pytest.mark.parametrize("scheme", ["Basic", "Token", ""])
async def test_only_bearer_is_a_token(rig: Rig, scheme: str) -> None:
    value = f"{scheme} operator-token-of-the-test".strip()
    got, _, _ = await rig.call("GET", "/agents", token=None, headers={"Authorization": value})
    assert got == 401


@pytest.mark.parametrize(
    "media",
    ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1", None],
)
async def test_a_post_must_be_json(rig: Rig, media: str | None) -> None:
    head = f"POST /interagent/send_async HTTP/1.1\r\nHost: 127.0.0.1:{rig.server.port}\r\n"
    head += f"Content-Type: {media}\r\n" if media else ""
    body = '{"to":"worker","message":"do it"}'
    assert await raw(rig, head, body, token=False) == 401
    assert await raw(rig, head, body, token=True) == 415
    assert await rig.mailbox.list() == []


async def raw(rig: Rig, head: str, body: str, *, token: bool) -> int:
    """Status of a request written by hand."""
    import asyncio

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
async def test_a_missing_or_doubled_host_is_refused(rig: Rig, hosts: tuple[str, ...]) -> None:
    own = f"127.0.0.1:{rig.server.port}"
    head = "GET /interagent/agents HTTP/1.1\r\n"
    head += "".join(f"Host: {host.format(own=own)}\r\n" for host in hosts)
    assert await raw(rig, head, "", token=True) in (400, 403)


async def test_an_action_without_a_body_needs_no_content_type(rig: Rig) -> None:
    head = f"POST /agents/worker/stop HTTP/1.1\r\nHost: 127.0.0.1:{rig.server.port}\r\n"
    assert await raw(rig, head, "", token=True) == 200
    assert await raw(rig, head, '{"x":1}', token=True) == 415
    assert await raw(rig, head + "Content-Type: text/plain\r\n", "", token=True) == 415
    assert rig.control.calls == [("stop", "worker", "operator")]


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_over_a_mebibyte_is_413(rig: Rig, chunked: bool) -> None:
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
    assert len(await rig.mailbox.list()) == 1


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
    rig: Rig, path: str, body: dict[str, str] | None
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
    assert await rig.mailbox.list() == []


async def test_every_answer_carries_the_headers_that_browsers_obey(rig: Rig) -> None:
    for path in ("/healthz", "/agents", "/nowhere"):
        _, _, headers = await rig.call("GET", path)
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Frame-Options"] == "DENY"
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert headers["Cache-Control"] == "no-store"
        assert headers["Server"] == "agentsup"
        assert headers["X-Request-Id"].startswith("req_")
        assert "Access-Control-Allow-Origin" not in headers


async def test_a_defect_becomes_a_problem_that_names_its_log_line(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken() -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(rig.control, "agents", broken)
    got, document, headers = await rig.call("GET", "/agents")
    assert (got, document["code"], document["success"]) == (500, "internal", False)
    assert document["request_id"] == headers["X-Request-Id"]
    assert "secret detail" not in str(document)
    assert any(document["request_id"] in record.getMessage() for record in caplog.records)


async def test_a_taken_port_is_named_with_what_to_do(rig: Rig) -> None:
    from agentsup.api.server import ApiServer
    from agentsup.model.errors import ConfigError

    second = ApiServer(rig.deps, port=rig.server.port)
    with pytest.raises(ConfigError) as caught:
        await second.start()
    assert str(rig.server.port) in str(caught.value)
    assert "--port" in str(caught.value)
    assert caught.value.field == "api.port"
    await second.close()


async def test_an_address_of_another_machine_is_named(rig: Rig) -> None:
    from agentsup.api.server import ApiServer
    from agentsup.model.errors import ConfigError

    with pytest.raises(ConfigError) as caught:
        await ApiServer(rig.deps, host="203.0.113.7", port=0).start()
    assert caught.value.field == "api.bind"


async def test_after_close_nothing_listens(rig: Rig) -> None:
    await rig.server.close()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", rig.server.port)) != 0
