"""Asking agents over HTTP: answers, refusals, keys and results."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox.mail import Asker
from agentsup.mailbox.messages import sessions
from agentsup.mailbox.work.slots import SlotPool
from agentsup.model.message import DeliverTo, LaneName, MessageState, NewMessage, text_parts
from agentsup.model.principal import OPERATOR
from tests.component.api.conftest import LIMITS, ApiFixture

SEND = "/interagent/send"
SEND_ASYNC = "/interagent/send_async"


class Asking:
    """A call under way."""

    def __init__(
        self, rig: ApiFixture, owner: TaskOwner, body: dict[str, Any], **more: Any
    ) -> None:
        self.task = owner.spawn(rig.call("POST", SEND, body, **more), name="test:ask")


async def test_send_answers_with_the_agents_text(rig: ApiFixture) -> None:
    owner = TaskOwner("test")
    asking = Asking(rig, owner, {"to": "WORKER", "message": "how many?", "priority": "High"})
    lease = await rig.lease("worker")
    assert lease.message.text == "how many?"
    assert lease.message.priority.name == "HIGH"
    await rig.finish(lease, "forty-two")
    status, document, _ = await asking.task
    assert status == 200
    assert document == {
        "sender": "worker",
        "text": "forty-two",
        "success": True,
        "error": "",
        "message_id": lease.message.message_id,
        "session": lease.message.session_id,
    }


async def test_an_engine_failure_is_never_success(rig: ApiFixture) -> None:
    owner = TaskOwner("test")
    asking = Asking(rig, owner, {"to": "worker", "message": "go"})
    lease = await rig.lease("worker")
    await rig.finish(lease, error="the model refused the key")
    status, document, headers = await asking.task
    assert status == 502
    assert headers["Content-Type"] == "application/problem+json"
    assert document["success"] is False
    assert document["code"] == "engine_failed"
    assert "the model refused the key" in document["error"]
    assert "the model refused the key" in document["text"]
    assert document["message_id"] == lease.message.message_id
    _, result, _ = await rig.call("GET", f"/interagent/results/{document['message_id']}")
    assert (result["state"], result["success"]) == ("done", False)
    assert result["error"] == "the model refused the key"


async def test_past_its_timeout_send_fails_and_the_message_goes_on(rig: ApiFixture) -> None:
    status, document, _ = await rig.call(
        "POST", SEND, {"to": "worker", "message": "slow", "timeout": 0.05}
    )
    assert (status, document["code"], document["success"]) == (504, "timed_out", False)
    lease = await rig.lease("worker")
    assert lease.message.message_id == document["message_id"]
    await rig.finish(lease, "late, but here")
    _, result, _ = await rig.call("GET", f"/interagent/results/{document['message_id']}")
    assert (result["success"], result["text"]) == (True, "late, but here")


@pytest.mark.parametrize("state", ["failed", "stopped"])
async def test_a_down_agent_refuses_send_and_queues_send_async(rig: ApiFixture, state: str) -> None:
    rig.directory.set_status("worker", state, "its token was refused")
    status, document, _ = await rig.call("POST", SEND, {"to": "worker", "message": "hello"})
    assert (status, document["code"], document["success"]) == (409, "agent_down", False)
    assert "its token was refused" in document["error"]
    assert "agents start worker" in document["error"]
    status, document, _ = await rig.call("POST", SEND_ASYNC, {"to": "worker", "message": "hello"})
    assert (status, document["agent_state"], document["success"]) == (202, state, True)
    assert (await rig.mailbox.messages.get(document["task_id"])).text == "hello"


async def test_a_key_said_again_names_the_same_message_and_another_body_conflicts(
    rig: ApiFixture,
) -> None:
    body = {"to": "worker", "message": "once", "idempotency_key": "k1"}
    first = await rig.call("POST", SEND_ASYNC, body)
    again = await rig.call("POST", SEND_ASYNC, body)
    assert first[0] == again[0] == 202
    assert first[1]["task_id"] == again[1]["task_id"]
    assert (first[1]["duplicate"], again[1]["duplicate"]) == (False, True)
    status, document, _ = await rig.call("POST", SEND_ASYNC, {**body, "message": "twice"})
    assert (status, document["code"], document["success"]) == (409, "conflict", False)
    await rig.finish(await rig.lease("worker"), "done")
    after = await rig.call("POST", SEND_ASYNC, body)
    assert (after[0], after[1]["task_id"]) == (202, first[1]["task_id"])
    assert len(await rig.mailbox.messages.list()) == 1


async def test_the_sender_comes_from_the_token(rig: ApiFixture) -> None:
    token = rig.agent_tokens["Scout"]
    for name, wanted in (("main", 403), ("scout", 202), (None, 202)):
        body = {"to": "worker", "message": "mine", "from": name, "silent": True}
        status, document, _ = await rig.call("POST", SEND_ASYNC, body, token=token)
        assert status == wanted
        if wanted == 202:
            message = await rig.mailbox.messages.get(document["task_id"])
            assert message.sender_agent_id == "agt_Scout"
        else:
            assert (document["field"], document["success"]) == ("from", False)


async def test_a_runs_token_sends_as_its_agent(rig: ApiFixture) -> None:
    run = rig.tokens.issue_run("agt_Scout", "Scout", "msg_1")
    status, document, _ = await rig.call(
        "POST", SEND_ASYNC, {"to": "worker", "message": "x"}, token=run
    )
    assert status == 202
    assert (await rig.mailbox.messages.get(document["task_id"])).sender_agent_id == "agt_Scout"
    status, document, _ = await rig.call(
        "POST", SEND_ASYNC, {"to": "scout", "message": "x"}, token=run
    )
    assert (status, document["code"]) == (409, "loop_detected")


async def test_the_operator_may_send_as_any_agent_that_exists(rig: ApiFixture) -> None:
    body = {"to": "worker", "message": "x", "from": "Scout"}
    status, document, _ = await rig.call("POST", SEND_ASYNC, body)
    assert status == 202
    assert (await rig.mailbox.messages.get(document["task_id"])).sender_agent_id == "agt_Scout"
    status, document, _ = await rig.call("POST", SEND_ASYNC, {**body, "from": "ghost"})
    assert status == 404
    status, document, _ = await rig.call("POST", SEND_ASYNC, {**body, "from": "operator"})
    assert (await rig.mailbox.messages.get(document["task_id"])).sender_agent_id == ""


async def test_an_agent_can_not_have_results_put_before_another(rig: ApiFixture) -> None:
    body = {"to": "worker", "message": "x", "reply_to": "main"}
    token = rig.agent_tokens["Scout"]
    status, document, _ = await rig.call("POST", SEND_ASYNC, body, token=token)
    assert (status, document["field"]) == (403, "reply_to")
    status, document, _ = await rig.call("POST", SEND_ASYNC, body)
    assert status == 202
    message = await rig.mailbox.messages.get(document["task_id"])
    assert (message.deliver_to.kind, message.deliver_to.agent_id) == ("mailbox", "agt_main")


async def test_unknown_and_removed_agents(rig: ApiFixture) -> None:
    rig.directory.removed.add("gone")
    for path in (SEND, SEND_ASYNC):
        status, document, _ = await rig.call("POST", path, {"to": "ghost", "message": "x"})
        assert (status, document["code"], document["success"]) == (404, "not_found", False)
        assert document["did_you_mean"]
        status, document, _ = await rig.call("POST", path, {"to": "gone", "message": "x"})
        assert (status, document["success"]) == (410, False)


async def test_a_full_queue_is_429_with_its_name_and_size(rig: ApiFixture) -> None:
    for _ in range(5):
        assert (await rig.call("POST", SEND_ASYNC, {"to": "worker", "message": "x"}))[0] == 202
    status, document, headers = await rig.call("POST", SEND_ASYNC, {"to": "worker", "message": "x"})
    assert (status, document["code"], document["limit"]) == (429, "overloaded", 5)
    assert int(headers["Retry-After"]) >= 1


@pytest.mark.parametrize(
    "body, field",
    [
        ({}, "to"),
        ({"to": "worker", "message": "  \n"}, "message"),
        ({"to": "worker", "message": 5}, "message"),
        ({"to": ["worker"], "message": "x"}, "to"),
        ({"to": "worker", "message": "x", "new_session": "yes"}, "new_session"),
        ({"to": "worker", "message": "x", "timeout": "5"}, "timeout"),
        ({"to": "worker", "message": "x", "timeout": 0}, "timeout"),
        ({"to": "worker", "message": "x", "timeout": 1e9}, "timeout"),
        ({"to": "worker", "message": "x", "priority": "urgent"}, "priority"),
        ({"to": "worker", "message": "x", "from": 7}, "from"),
        ({"to": "worker", "message": "x", "idempotency_key": ""}, "idempotency_key"),
        ({"to": "worker", "message": "x", "thread_id": {}}, "thread_id"),
        ({"to": "worker", "message": "x", "idempotencykey": "k"}, "idempotencykey"),
    ],
)
async def test_a_wrong_field_is_named(rig: ApiFixture, body: dict[str, Any], field: str) -> None:
    for path in (SEND, SEND_ASYNC):
        status, document, _ = await rig.call("POST", path, body)
        assert status == 400, document
        assert document["field"] == field
        assert document["success"] is False
        assert field in document["error"]
    assert await rig.mailbox.messages.list() == []


async def _talked(rig: ApiFixture, agent: str, channel: str, conversation: str) -> None:
    """Somebody has written to the agent there."""
    await rig.mailbox.queue.accept(
        NewMessage(
            agent_id=f"agt_{agent}",  # type: ignore[arg-type]  # an id is a text in all but name
            session_key=f"chat:{channel}:{conversation}",
            parts=text_parts("please"),
            principal=OPERATOR,
            deliver_to=DeliverTo(
                "chat", agent_id=f"agt_{agent}", channel=channel, conversation=conversation
            ),
        )
    )


async def test_a_chat_that_is_named_is_that_of_its_platform(rig: ApiFixture) -> None:
    """As the predecessor's scripts name the chat and topic that they work for, for an operator. A
    console conversation of the same name, such as results without a place left, is never meant."""
    for channel, agent, conversation in (
        ("console", "worker", "-100/7"),
        ("telegram", "worker", "-100/7"),
    ):
        await _talked(rig, agent, channel, conversation)
    named = {"message": "x", "chat_id": -100, "topic_id": "7"}
    for body in (
        {"to": "Scout", "from": "worker", **named},
        {"to": "main", "from": "Scout", "reply_to": "worker", **named},
    ):
        status, document, _ = await rig.call("POST", SEND_ASYNC, body)
        assert status == 202, document
        to = (await rig.mailbox.messages.get(document["task_id"])).deliver_to
        assert to.then is not None
        assert (to.agent_id, to.then.channel, to.then.conversation) == (
            "agt_worker",
            "telegram",
            "-100/7",
        )


async def test_a_chat_in_which_nobody_wrote_is_refused(rig: ApiFixture) -> None:
    await _talked(rig, "worker", "telegram", "1001")
    body = {"to": "Scout", "message": "x", "from": "worker"}
    for named in ({"chat_id": 1002}, {"chat_id": "1001", "topic_id": 7}, {"chat_id": -100}):
        status, document, _ = await rig.call("POST", SEND_ASYNC, {**body, **named})
        assert (status, document["field"]) == (404, "chat_id"), named
    body["from"] = "Scout"
    assert (await rig.call("POST", SEND_ASYNC, {**body, "to": "worker", "chat_id": 1001}))[0] == 404
    for odd in ({"chat_id": True}, {"chat_id": [1]}, {"chat_id": "x" * 201}):
        assert (await rig.call("POST", SEND_ASYNC, {**body, **odd}))[0] == 400, odd
    status, document, _ = await rig.call("POST", SEND_ASYNC, {**body, "topic_id": 7})
    assert (status, document["field"]) == (400, "topic_id")
    rig.not_allowed.add("1001")
    body["from"] = "worker"
    status, document, _ = await rig.call("POST", SEND_ASYNC, {**body, "chat_id": 1001})
    assert (status, document["field"]) == (403, "chat_id")


async def test_an_engine_names_no_chat_but_its_turns_own(rig: ApiFixture) -> None:
    """With and without a running turn, whatever platform's and agent's the chat is."""
    for conversation in ("1001", "1002"):
        await _talked(rig, "worker", "telegram", conversation)
    lease = await rig.lease("worker")
    own = lease.message.deliver_to.conversation
    run = rig.tokens.issue_run("agt_worker", "worker", lease.message.message_id)
    body = {"to": "Scout", "message": "x"}
    assert (await rig.call("POST", SEND_ASYNC, {**body, "chat_id": own}, token=run))[0] == 202
    others = ("1001", "1002", "local", "main")
    for token in (run, rig.agent_tokens["worker"]):
        for other in others if token != run else sorted({*others} - {own}):
            status, document, _ = await rig.call(
                "POST", SEND_ASYNC, {**body, "chat_id": other}, token=token
            )
            assert (status, document["field"]) == (403, "chat_id"), other


async def test_an_engines_thread_is_a_key_of_its_own(rig: ApiFixture) -> None:
    """Whatever it is called: a chat's key, a session's id, another agent's thread."""
    await _talked(rig, "worker", "telegram", "1001")
    (private,) = await rig.mailbox.messages.list(agent_id="agt_worker")
    pointed = await rig.database.read(sessions.current, "agt_worker", "chat:telegram:1001")
    assert pointed == private.session_id
    own = rig.agent_tokens["Scout"]

    async def session(thread: str, **more: Any) -> str:
        body = {"to": "worker", "message": "x", "thread_id": thread, **more}
        status, document, _ = await rig.call("POST", SEND_ASYNC, body, token=own)
        assert status == 202, document
        return str(document["session"])

    begun = await session("chat:telegram:1001")
    assert await session("chat:telegram:1001") == begun, "a thread of its own goes on"
    fresh = await session("chat:telegram:1001", new_session=True)
    assert private.session_id not in (begun, fresh)
    await rig.finish(await rig.lease("worker"), "done")
    assert await session(private.session_id) != private.session_id
    await rig.finish(await rig.lease("worker"), "done")
    assert await rig.database.read(sessions.current, "agt_worker", "chat:telegram:1001") == pointed
    operators = {"to": "worker", "message": "x", "thread_id": "chat:telegram:1001"}
    assert (await rig.call("POST", SEND_ASYNC, operators))[1]["session"] == pointed


async def test_a_result_tells_its_times_and_waits_when_asked(rig: ApiFixture) -> None:
    owner = TaskOwner("test")
    _, sent, _ = await rig.call("POST", SEND_ASYNC, {"to": "worker", "message": "x"})
    path = f"/interagent/results/{sent['task_id']}"
    _, early, _ = await rig.call("GET", path)
    assert (early["state"], early["success"], early["finished_at"]) == ("queued", None, None)
    _, still, _ = await rig.call("GET", path + "?wait=0.05")
    assert still["state"] == "queued"
    waiting = owner.spawn(rig.call("GET", path + "?wait=10"), name="test:wait")
    await rig.finish(await rig.lease("worker"), "yes")
    status, document, _ = await waiting
    assert status == 200
    assert (document["state"], document["success"], document["text"]) == ("done", True, "yes")
    assert document["accepted_at"] <= document["started_at"] <= document["finished_at"]
    assert document["session"] == sent["session"]
    for query in ("wait=x", "wait=1&wait=2", "weight=1"):
        status, document, _ = await rig.call("GET", f"{path}?{query}")
        assert (status, document["field"]) == (400, query.partition("=")[0]), query


async def test_an_agent_reads_only_what_it_sent_or_got(rig: ApiFixture) -> None:
    _, sent, _ = await rig.call(
        "POST", SEND_ASYNC, {"to": "worker", "message": "x"}, token=rig.agent_tokens["Scout"]
    )
    path = f"/interagent/results/{sent['task_id']}"
    for name, wanted in (("Scout", 200), ("worker", 200), ("main", 403)):
        assert (await rig.call("GET", path, token=rig.agent_tokens[name]))[0] == wanted
    status, document, _ = await rig.call("GET", "/interagent/results/msg_unknown")
    assert (status, document["success"]) == (404, False)


async def test_a_session_belongs_to_agent_and_sender_unless_told_otherwise(rig: ApiFixture) -> None:
    async def session(**more: Any) -> str:
        body = {"to": "worker", "message": "x", **more}
        return str((await rig.call("POST", SEND_ASYNC, body))[1]["session"])

    first = await session()
    assert await session() == first
    assert await session(thread_id="topic") != first
    fresh = await session(new_session=True)
    assert fresh != first
    assert await session() == fresh


async def test_waits_are_bounded_and_end_with_the_listener(rig: ApiFixture) -> None:
    owner = TaskOwner("test")
    asking = [
        Asking(rig, owner, {"to": "worker", "message": str(number)}).task for number in range(4)
    ]
    lease = await rig.lease("worker")
    while rig.server.connections["waits"] < 4:
        await rig.call("GET", "/healthz")
    status, document, _ = await rig.call("POST", SEND, {"to": "main", "message": "one more"})
    assert (status, document["queue"]) == (429, "api.waits")
    assert await rig.mailbox.messages.list(agent_id="agt_main") == []
    await rig.finish(lease, "one")
    await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
    await rig.server.close()
    statuses = sorted([(await task)[0] for task in asking])
    assert statuses == [200, 503, 503, 503]


@pytest.mark.parametrize("way", ["send", "result"])
async def test_a_client_that_leaves_gives_its_place_back_and_its_message_goes_on(
    rig: ApiFixture, way: str
) -> None:
    owner = TaskOwner("test")
    body = {"to": "worker", "message": "slow"}
    if way == "send":
        asking = Asking(rig, owner, body).task
    else:
        _, sent, _ = await rig.call("POST", SEND_ASYNC, body)
        path = f"/interagent/results/{sent['task_id']}?wait=60"
        asking = owner.spawn(rig.call("GET", path), name="test:wait")
    lease = await rig.lease("worker")
    await rig.until_open("waits", 1)
    asking.cancel()
    await rig.until_open("waits", 0)
    assert (await rig.mailbox.messages.get(lease.message.message_id)).state is MessageState.LEASED
    await rig.finish(lease, "here all the same")
    _, result, _ = await rig.call("GET", f"/interagent/results/{lease.message.message_id}")
    assert (result["success"], result["text"]) == (True, "here all the same")


async def test_a_turn_whose_program_left_while_it_asked_is_told_the_answer_later(
    rig: ApiFixture,
) -> None:
    await rig.call("POST", SEND_ASYNC, {"to": "main", "message": "ask"})
    turn = await rig.lease("main")
    slots = SlotPool(dict.fromkeys(LaneName, 1), lambda: None)
    rig.askers["agt_main"] = Asker(turn, slots.take(LaneName.INTERACTIVE))
    run = rig.tokens.issue_run("agt_main", "main", turn.message.message_id)
    body = {"to": "worker", "message": "slow", "timeout": 4 * LIMITS.heartbeat_s}
    asking = Asking(rig, TaskOwner("test"), body, token=run).task
    asked = (await rig.lease("worker")).message.message_id
    assert (await rig.mailbox.messages.get(asked)).deliver_to.waited
    asking.cancel()
    await rig.until_open("waits", 0)
    assert not (await rig.mailbox.messages.get(asked)).deliver_to.waited


async def test_health_and_names(rig: ApiFixture) -> None:
    rig.directory.set_status("Scout", "failed", "boom")
    status, document, _ = await rig.call(
        "GET", "/interagent/health", token=rig.agent_tokens["main"]
    )
    assert status == 200
    assert document["agents"]["Scout"] == {
        "status": "failed",
        "uptime": None,
        "restart_count": 2,
        "last_crash_error": "boom",
        "last_reason": "boom",
        "next_retry_at": None,
        "desired": "up",
        "crashed": True,
    }
    assert document["agents"]["main"]["crashed"] is False
    assert document["agents"]["main"]["uptime"] == 1.5
