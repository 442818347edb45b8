"""The operator sees what agents sent each other, and marks it as read; looking marks nothing."""

from __future__ import annotations

from typing import Any

import pytest

from agentsup.mailbox.mail import Dispatcher, new_mail
from agentsup.model.principal import OPERATOR, Principal, PrincipalKind
from tests.component.api.conftest import ApiFixture

WORKER = Principal(PrincipalKind.AGENT, "agt_worker", "worker")


async def letters(rig: ApiFixture, count: int) -> list[str]:
    """Letters of worker's to Scout, oldest first."""
    dispatcher = rig.deps.dispatcher
    assert isinstance(dispatcher, Dispatcher)
    sent = [
        await dispatcher.send("Scout", new_mail(f"letter {n}"), caller=WORKER) for n in range(count)
    ]
    return [each.message_id for each in sent]


async def mail(rig: ApiFixture, query: str = "") -> dict[str, Any]:
    status, document, _ = await rig.call("GET", f"/mail?agent=Scout{query}")
    assert status == 200, document
    return dict(document)


async def test_it_is_shown_in_pages_and_marked(rig: ApiFixture) -> None:
    ids = await letters(rig, 5)
    first = await mail(rig, "&limit=3")
    assert [one["id"] for one in first["mail"]] == ids[:1:-1]
    assert [one["read_at"] for one in first["mail"]] == [None] * 3
    assert (first["unread"], first["mail"][0]["text"]) == (5, "letter 4")
    rest = await mail(rig, f"&limit=3&cursor={first['next_cursor']}")
    assert [one["id"] for one in rest["mail"]] == ids[1::-1]
    assert (rest["next_cursor"], rest["unread"]) == (None, 5), "to look marks nothing"
    body = {"agent": "agt_Scout", "message_ids": ids[:2]}
    for marked in (2, 0):
        status, document, _ = await rig.call("POST", "/mail/read", body)
        assert (status, document) == (200, {"success": True, "marked": marked, "unread": 3})
    unread = await mail(rig, "&unread=true")
    assert [one["id"] for one in unread["mail"]] == ids[:1:-1]
    assert [one["read_at"] is None for one in (await mail(rig))["mail"]] == [True] * 3 + [False] * 2
    _, document, _ = await rig.call("POST", "/mail/read", {"agent": "scout", "all": True})
    assert (document["marked"], document["unread"]) == (3, 0)
    assert (await mail(rig, "&unread=true"))["mail"] == []


async def test_an_operators_broadcast_is_among_it_and_a_chat_is_not(rig: ApiFixture) -> None:
    dispatcher = rig.deps.dispatcher
    assert isinstance(dispatcher, Dispatcher)
    await rig.call("POST", "/interagent/send_async", {"to": "Scout", "message": "a person's words"})
    await dispatcher.broadcast(new_mail("all hands"), names=("Scout",), caller=OPERATOR)
    assert [one["text"] for one in (await mail(rig))["mail"]] == ["all hands"]


@pytest.mark.parametrize(
    "method, path, body, status",
    [
        ("GET", "/mail", None, 400),
        ("GET", "/mail?agent=nobody", None, 404),
        ("GET", "/mail?agent=Scout&limit=0", None, 400),
        ("GET", "/mail?agent=Scout&limit=101", None, 400),
        ("GET", "/mail?agent=Scout&mark=true", None, 400),
        ("POST", "/mail/read", {"agent": "Scout"}, 400),
        ("POST", "/mail/read", {"agent": "Scout", "message_ids": []}, 400),
        ("POST", "/mail/read", {"agent": "Scout", "message_ids": ["x"], "all": True}, 400),
        ("POST", "/mail/read", {"agent": "nobody", "all": True}, 404),
        ("POST", "/mail/read", {"agent": "Scout", "message_ids": ["msg_0"]}, 404),
    ],
)
async def test_what_is_wrong_is_said(
    rig: ApiFixture, method: str, path: str, body: Any, status: int
) -> None:
    assert (await rig.call(method, path, body))[0] == status


async def test_one_that_is_not_its_mail_has_nothing_marked(rig: ApiFixture) -> None:
    (letter,) = await letters(rig, 1)
    body = {"agent": "Scout", "message_ids": [letter, "msg_0"]}
    assert (await rig.call("POST", "/mail/read", body))[0] == 404
    assert (await rig.call("POST", "/mail/read", {**body, "agent": "worker"}))[0] == 404
    assert (await mail(rig))["unread"] == 1
