"""Bodies, paths and query strings that are no sensible text or number: refused with a sentence."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from pydantic import ValidationError

from agentsup.api.http.route import ApiRoute
from agentsup.api.server.listener import ROUTES
from agentsup.channels.core.receiving.inbox import MAX_TEXT_BYTES, ChatOrigin
from agentsup.model.errors import BadRequest
from agentsup.model.principal import OPERATOR
from tests.component.api.conftest import ApiFixture
from tests.support.api_fuzz import ApiFuzz

VALUES: tuple[Any, ...] = (None, [], {}, "", 0, True, 1.5, [None], "x" * 5000)
BODY_FIELDS = [
    pytest.param(route, name, id=f"{route.path} {name}")
    for route in ROUTES
    if route.body is not None
    for name in route.body.model_json_schema(by_alias=True).get("properties", {})
]


@pytest.mark.parametrize("route, name", BODY_FIELDS)
def test_no_value_of_a_field_is_a_defect(route: ApiRoute, name: str) -> None:
    """Many clients send nulls: each is taken for nothing, or refused with the field."""
    assert route.body is not None
    for value in VALUES:
        with contextlib.suppress(ValidationError):
            route.body.model_validate_json(json.dumps({name: value}))


async def test_a_chat_of_null_is_none_at_all(rig: ApiFixture) -> None:
    nulls = {"chat_id": None, "topic_id": None, "thread_id": None, "reply_to": None}
    sent = await rig.call(
        "POST", "/interagent/send_async", {"to": "worker", "message": "x", **nulls}
    )
    assert sent[0] == 202
    del nulls["thread_id"], nulls["reply_to"]
    made = await rig.call("POST", "/tasks/create", {"prompt": "x", "agent": "worker", **nulls})
    assert made[0] == 200


WAITS = frozenset(
    {
        "GET /events",
        "GET /ws",
        "GET /interagent/results/{id}",
        "GET /tasks/{id}",
        "POST /interagent/send",
        "POST /tasks/ask_parent",
        "POST /v1/chat/completions",
    }
)
"""Answered when somebody has worked, or for as long as one listens."""


async def test_no_request_with_an_agents_token_breaks_something(rig: ApiFixture) -> None:
    """Callers that a running daemon has are in tests/process/test_fuzz_api.py; this token is that of
    an agent outside its turns."""
    sent = await rig.call("POST", "/interagent/send_async", {"to": "worker", "message": "x"})
    made = await rig.call("POST", "/tasks/create", {"prompt": "x", "agent": "worker"})
    names = [*rig.directory.names(), "nobody"]
    ids = [sent[1]["task_id"], made[1]["task_id"]]
    pool = {"id": ids, "task_id": ids, **dict.fromkeys(("name", "agent", "to", "from"), names)}
    document = (await rig.call("GET", "/openapi.json"))[1]
    fuzz = ApiFuzz(document, 1, pool, without=WAITS)
    found: dict[int, set[str]] = {}
    for _ in range(500):
        asked = fuzz.next()
        status, told, _ = await rig.call(
            asked.method,
            asked.url,
            data=asked.body,
            headers=asked.headers,
            token=rig.agent_tokens["worker"],
        )
        assert status != 500, (asked, told)
        found.setdefault(status, set()).add(asked.operation)
    assert len(found[403]) > 10, "an agent is refused what is an operator's"
    assert len(found[200]) > 5, "and given what is its own"


JSON = {"Content-Type": "application/json"}
TO = b'{"to":"worker","message":'
BODIES = {
    "half a character": TO + rb'"\ud800"}',
    "half a character in a name": rb'{"to":"\udfff","message":"x"}',
    "bytes that are no UTF-8": TO + b'"\xff\xfe"}',
    "an encoded surrogate": TO + b'"\xed\xa0\x80"}',
    "a long name": b'{"to":"' + b"a" * 5000 + b'","message":"x"}',
    "a deep list": b"[" * 100_000,
    "a deep object": b'{"to":' * 50_000,
    "an endless number": TO + b'"x","timeout":1e400}',
    "no number": TO + b'"x","timeout":NaN}',
    "a byte order mark": b"\xef\xbb\xbf" + TO + b'"x"}',
    "nothing at all": b"",
    "a list": b"[]",
    "null": b"null",
    "a text": b'""',
    "nothing but spaces": TO + rb'" \n\t"}',
    "half a body": TO,
    "a long key": TO + b'"x","idempotency_key":"' + b"k" * 300 + b'"}',
}
QUERIES = [
    *(f"/messages?limit={n}" for n in ("0", "-1", "501", "9" * 30, "0x10", "1e2", "%00")),
    *(f"/messages?cursor={n}" for n in ("0", "-1", 2**63, "9" * 30, "1e5", "")),
    f"/dead?cursor={2**63}",
    "/questions?limit=501",
    "/poison?limit=501",
    "/questions?state=%00",
    "/messages?state=",
    "/messages?limit=1&limit=2",
    "/messages?nope=1",
    *(f"/interagent/results/x?wait={n}" for n in ("-1", "nan", "inf", "1e9", "%00")),
    *(f"/events?after={n}" for n in ("-1", 2**63, "9" * 30)),
    "/events?types=,,,",
    "/web/sessions",
    "/events?types=%ED%A0%80",
]
PATHS = [
    ("GET", "/messages/{}"),
    ("GET", "/threads/{}"),
    ("GET", "/interagent/results/{}"),
    ("GET", "/messages?agent={}"),
    ("GET", "/events?agent={}"),
    ("POST", "/agents/{}/start"),
    ("POST", "/dead/{}/requeue"),
    ("GET", "/poison/{}"),
    ("POST", "/poison/{}/retry"),
    ("POST", "/messages/{}/cancel"),
]


def assert_refused(status: int, document: Any, wanted: int) -> None:
    assert status == wanted, document
    assert document["status"] == wanted
    assert document["code"]
    assert len(document["detail"]) > 10


@pytest.mark.parametrize("path", ["/interagent/send", "/interagent/send_async"])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
async def test_a_body_that_makes_no_sense(rig: ApiFixture, path: str, body: bytes) -> None:
    status, document, _ = await rig.call("POST", path, data=body, headers=JSON)
    assert_refused(status, document, 400)
    assert await rig.mailbox.messages.counts() == {}


@pytest.mark.parametrize("path", QUERIES)
async def test_a_query_that_makes_no_sense(rig: ApiFixture, path: str) -> None:
    assert_refused(*(await rig.call("GET", path))[:2], 400)


@pytest.mark.parametrize("method, path", PATHS)
@pytest.mark.parametrize("name", ["%00", "%ED%A0%80", "%FF", "a" * 7000])
async def test_a_name_that_cannot_be(rig: ApiFixture, method: str, path: str, name: str) -> None:
    body: dict[str, str] | None = {} if method == "POST" else None
    assert_refused(*(await rig.call(method, path.format(name), body))[:2], 404)


async def test_the_largest_numbers_are_numbers(rig: ApiFixture) -> None:
    status, document, _ = await rig.call("GET", f"/messages?cursor={2**63 - 1}&limit=500")
    assert (status, document["messages"]) == (200, [])


async def test_nul_is_a_character_like_any_other(rig: ApiFixture) -> None:
    status, document, _ = await rig.call(
        "POST", "/interagent/send_async", {"to": "worker", "message": "a\0b", "summary": "\0"}
    )
    assert status == 202
    _, stored, _ = await rig.call("GET", f"/messages/{document['message_id']}")
    assert stored["text"] == "a\0b"


async def test_a_socket_refuses_half_characters_and_goes_on(rig: ApiFixture) -> None:
    headers = {"Authorization": "Bearer operator-token-of-the-test"}
    async with rig.client.ws_connect(rig.url + "/ws", headers=headers) as socket:
        await socket.send_str('{"type":"hello","agent":"worker"}')
        assert (await socket.receive_json())["type"] == "welcome"
        for frame in (
            r'{"type":"say","id":"1","text":"\ud800"}',
            r'{"type":"say","id":"\ud800","text":"x"}',
            "[" * 50_000,
            '{"type":"say","id":1,"text":2}',
        ):
            await socket.send_str(frame)
            told = await socket.receive_json()
            assert (told["type"], told["problem"]["status"]) == ("error", 400)
        assert await rig.mailbox.messages.counts() == {}
        await socket.send_str(r'{"type":"say","id":"2","text":"a\u0000b"}')
        assert (await socket.receive_json())["type"] == "accepted"


@pytest.mark.parametrize("text", ["half \ud800", "\udfff", "é" * MAX_TEXT_BYTES, "", " \n"])
async def test_a_channel_hears_what_is_wrong_with_a_text(rig: ApiFixture, text: str) -> None:
    with pytest.raises(BadRequest):
        await rig.deps.inbox.say(
            agent_name="worker",
            where=ChatOrigin("console", "c"),
            text=text,
            principal=OPERATOR,
            external_id="1",
        )
    assert await rig.mailbox.messages.counts() == {}
