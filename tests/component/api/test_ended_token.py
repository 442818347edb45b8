"""P7: with a token ends all that was opened by it."""

from __future__ import annotations

import asyncio
import json

import pytest
from aiohttp import ClientPayloadError, WSMsgType

from agentsup.kit.tasks import TaskOwner
from tests.component.api.conftest import OPERATOR_TOKEN, ApiFixture
from tests.support.bound import BOUND_S

OLD = {"Authorization": f"Bearer {OPERATOR_TOKEN}"}
HELLO = {"type": "hello", "agent": "main", "channel": "console", "conversation": "local"}


async def test_a_socket_and_a_stream_end_with_their_token(rig: ApiFixture) -> None:
    socket = await rig.client.ws_connect(rig.url + "/ws", headers=OLD)
    await socket.send_str(json.dumps(HELLO))
    assert json.loads((await socket.receive()).data)["type"] == "welcome"
    stream = await rig.client.get(rig.url + "/events", headers=OLD)
    assert await stream.content.readline()
    rig.tokens.revoke(OPERATOR_TOKEN)
    async with asyncio.timeout(BOUND_S):
        while (message := await socket.receive()).type is WSMsgType.TEXT:
            pass
        assert message.type is WSMsgType.CLOSE
        with pytest.raises(ClientPayloadError):  # cut
            await stream.content.read()
    assert (await rig.call("GET", "/status"))[0] == 401
    await rig.tell("main", "of today")
    assert socket.closed
    stream.close()


async def test_what_is_said_right_after_it_is_refused(rig: ApiFixture) -> None:
    socket = await rig.client.ws_connect(rig.url + "/ws", headers=OLD)
    await socket.send_str(json.dumps(HELLO))
    assert json.loads((await socket.receive()).data)["type"] == "welcome"
    await socket.send_str(json.dumps({"type": "say", "id": "1", "text": "still the operator"}))
    rig.tokens.revoke(OPERATOR_TOKEN)
    async with asyncio.timeout(BOUND_S):
        while (message := await socket.receive()).type is WSMsgType.TEXT:
            assert json.loads(message.data)["type"] != "accepted"
    assert await rig.database.read(lambda r: r.all("SELECT 1 FROM messages")) == []


async def test_a_token_of_an_agent_ends_what_it_opened(rig: ApiFixture) -> None:
    ended = asyncio.Event()
    token = rig.tokens.issue_run("agt_main", "main", "msg_1")
    with rig.tokens.watched_by(token, ended.set):
        rig.tokens.revoke_agent("agt_main")
        assert ended.is_set()
    ended.clear()
    rig.tokens.revoke(token)
    assert not ended.is_set()


@pytest.mark.parametrize("way", ["send", "result"])
async def test_a_wait_ends_with_its_token_and_its_work_goes_on(rig: ApiFixture, way: str) -> None:
    owner = TaskOwner("test")
    body = {"to": "worker", "message": "slow"}
    if way == "send":
        asking = owner.spawn(rig.call("POST", "/interagent/send", body), name="test:wait")
    else:
        _, sent, _ = await rig.call("POST", "/interagent/send_async", body)
        path = f"/interagent/results/{sent['task_id']}?wait=60"
        asking = owner.spawn(rig.call("GET", path), name="test:wait")
    lease = await rig.lease("worker")
    await rig.until_open("waits", 1)
    rig.tokens.revoke(OPERATOR_TOKEN)
    async with asyncio.timeout(BOUND_S):
        status, document, _ = await asking
    assert (status, document["code"]) == (401, "unauthorised")
    assert rig.server.connections["waits"] == 0
    await rig.finish(lease, "here all the same")
    assert (
        await rig.mailbox.messages.get(lease.message.message_id)
    ).result_text == "here all the same"
