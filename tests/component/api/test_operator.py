"""What the operator sees and steers: agents, messages, dead letters, questions, the daemon."""

from __future__ import annotations

from typing import Any

import pytest

from agentsup.channels.core.receiving import rows as stored
from agentsup.channels.telegram import received
from agentsup.model.engine import Suspended
from agentsup.store import Tx
from tests.component.api.conftest import ApiFixture


async def queue(rig: ApiFixture, to: str, text: str, **more: Any) -> str:
    status, document, _ = await rig.call(
        "POST", "/interagent/send_async", {"to": to, "message": text, **more}
    )
    assert status == 202, document
    return str(document["task_id"])


async def test_agents_are_listed_and_shown(rig: ApiFixture) -> None:
    _, document, _ = await rig.call("GET", "/agents")
    assert {agent["name"] for agent in document["agents"]} == {"main", "Scout", "worker"}
    status, document, _ = await rig.call("GET", "/agents/scout")
    assert (status, document["name"], document["instance_id"]) == (200, "Scout", "ins_Scout")
    status, document, _ = await rig.call("GET", "/agents/ghost")
    assert (status, document["success"], document["did_you_mean"]) == (404, False, ["Scout"])
    _, document, _ = await rig.call("GET", "/agents/scout/explain")
    assert document["values"][0]["origin"] == "agents.json"
    assert (await rig.call("GET", "/diff"))[1] == {"pending": []}


@pytest.mark.parametrize("verb", ["start", "stop", "restart"])
async def test_agents_are_steered_by_who_holds_the_token(rig: ApiFixture, verb: str) -> None:
    bodies: tuple[dict[str, Any] | None, ...] = (None, {})
    for body in bodies:
        status, document, _ = await rig.call("POST", f"/agents/worker/{verb}", body)
        assert (status, document["success"], document["name"]) == (200, True, "worker")
        assert document["status"] == ("stopped" if verb == "stop" else "running")
    assert rig.control.calls == [(verb, "worker", "operator")] * 2
    status, document, _ = await rig.call("POST", f"/agents/worker/{verb}", {"now": True})
    assert (status, document["field"]) == (400, "now")
    assert (await rig.call("POST", f"/agents/ghost/{verb}"))[0] == 404


async def test_a_field_is_set_shown_and_cleared(rig: ApiFixture) -> None:
    path = "/agents/worker/overrides"
    status, document, _ = await rig.call("POST", path, {"field": "model", "value": "small"})
    assert (status, document["success"], document["agent"]) == (200, True, "worker")
    assert (document["value"], document["before"]) == ("small", None)
    _, listed, _ = await rig.call("GET", path)
    assert [(each["field"], each["value"]) for each in listed["fields"]] == [("model", "small")]
    status, document, _ = await rig.call("POST", path, {"field": "model", "value": None})
    assert (status, document["value"], document["before"]) == (200, None, "small")
    assert rig.control.calls[-1] == ("model=None", "worker", "operator")


async def test_a_field_is_set_by_operators_only_and_never_cleared_unsaid(rig: ApiFixture) -> None:
    body = {"field": "permission_mode", "value": "bypassPermissions"}
    agent = rig.tokens.issue_run("agt_worker", "worker", "")
    run = rig.tokens.issue_run("agt_worker", "worker", "msg_1")
    for token in (agent, run):
        for method, sent in (("POST", body), ("GET", None)):
            status, _, _ = await rig.call(method, "/agents/worker/overrides", sent, token=token)
            assert status == 403
    assert rig.control.calls == []
    for wrong in ({"field": "model"}, {"value": "x"}, {"field": "model", "value": ["x"]}):
        status, document, _ = await rig.call("POST", "/agents/worker/overrides", wrong)
        assert status == 400, document
    status, document, _ = await rig.call(
        "POST", "/agents/worker/overrides", {"field": "modle", "value": "x"}
    )
    assert (status, document["field"]) == (400, "modle")
    assert (await rig.call("POST", "/agents/ghost/overrides", body))[0] == 404


async def test_stop_all_answers_exact_counts(rig: ApiFixture) -> None:
    status, document, _ = await rig.call("POST", "/stop_all")
    assert status == 200
    assert document == {
        "success": True,
        "scope": "all",
        "running": 1,
        "queued": 2,
        "parked": 3,
        "processes": 4,
        "agents": 5,
        "elapsed_ms": 6.5,
        "durable": True,
        "names": ["main"],
        "schedules": [{"task_id": "task_1", "name": "nightly", "next_at": 1}],
    }
    assert rig.control.calls == [("stop", "all", "operator")]


async def test_a_removed_agents_mail_is_listed_and_given_away_once(rig: ApiFixture) -> None:
    kept, moved = [await queue(rig, "worker", text) for text in ("stays", "moves")]

    def removed(tx: Tx) -> None:
        tx.execute(
            "INSERT INTO agents (agent_id, name, present, created_at)"
            " VALUES ('agt_worker', 'worker', 0, 1)"
        )

    assert (await rig.call("GET", "/messages?removed=true"))[1]["messages"] == []
    await rig.database.write(removed)
    _, page, _ = await rig.call("GET", "/messages?removed=true")
    assert [(m["id"], m["agent"]) for m in page["messages"]] == [
        (moved, "worker"),
        (kept, "worker"),
    ]
    path = f"/messages/{moved}/reassign"
    status, first, _ = await rig.call("POST", path, {"to": "scout"})
    assert (status, first["agent"], first["replay_of"]) == (202, "Scout", moved)
    assert (await rig.call("POST", path, {"to": "Scout"}))[1] == first
    status, refused, _ = await rig.call("POST", path, {"to": "main"})
    assert (status, refused["code"]) == (409, "conflict")
    _, old, _ = await rig.call("GET", f"/messages/{moved}")
    assert (old["state"], old["error_code"]) == ("cancelled", "reassigned")
    _, page, _ = await rig.call("GET", "/messages?removed=true")
    assert [m["id"] for m in page["messages"]] == [kept]
    status, refused, _ = await rig.call("POST", path, {"to": "scott"})
    assert (status, refused["did_you_mean"]) == (404, ["Scout"])
    assert (await rig.call("POST", "/messages/msg_0/reassign", {"to": "main"}))[0] == 404
    status, refused, _ = await rig.call("POST", path, {"agent": "main"})
    assert (status, refused["field"]) == (400, "to")


async def test_messages_are_listed_newest_first_and_paged(rig: ApiFixture) -> None:
    ids = [await queue(rig, "worker", str(n)) for n in range(3)]
    other = await queue(rig, "main", "other", thread_id="t9")
    _, page, _ = await rig.call("GET", "/messages?limit=2")
    assert [m["id"] for m in page["messages"]] == [other, ids[2]]
    _, rest, _ = await rig.call("GET", f"/messages?limit=2&cursor={page['next_cursor']}")
    assert [m["id"] for m in rest["messages"]] == [ids[1], ids[0]]
    assert rest["next_cursor"] is None
    for query, wanted in (
        ("agent=WORKER", ids[::-1]),
        ("agent=agt_main", [other]),
        ("state=done", []),
        ("state=queued&agent=main", [other]),
        ("thread=t9", [other]),
        ("session=nothing", []),
    ):
        _, found, _ = await rig.call("GET", f"/messages?{query}")
        assert [m["id"] for m in found["messages"]] == wanted, query
    for query, field in (
        ("state=lost", "state"),
        ("limit=0", "limit"),
        ("agnet=x", "agnet"),
    ):
        status, document, _ = await rig.call("GET", f"/messages?{query}")
        assert (status, document["field"]) == (400, field)
    assert (await rig.call("GET", "/messages?agent=ghost"))[0] == 404


async def test_a_message_is_shown_with_its_place_and_its_thread(rig: ApiFixture) -> None:
    await queue(rig, "worker", "first", thread_id="t1")
    second = await queue(rig, "worker", "second", thread_id="t1", summary="short")
    status, document, _ = await rig.call("GET", f"/messages/{second}")
    assert status == 200
    assert (document["position"], document["agent"], document["text"]) == (1, "worker", "second")
    assert (document["sender"], document["summary"]) == ("operator", "short")
    _, thread, _ = await rig.call("GET", "/threads/t1")
    assert [m["text"] for m in thread["messages"]] == ["first", "second"]
    assert (await rig.call("GET", "/threads/none"))[0] == 404
    assert (await rig.call("GET", "/messages/none"))[0] == 404


async def test_cancel_ends_what_waits_and_what_runs_once(rig: ApiFixture) -> None:
    running = await queue(rig, "worker", "running")
    lease = await rig.lease("worker")
    waiting = await queue(rig, "worker", "waiting")
    status, document, _ = await rig.call("POST", f"/messages/{waiting}/cancel")
    assert (status, document["state"]) == (200, "cancelled")
    assert rig.aborted == []
    status, document, _ = await rig.call("POST", f"/messages/{running}/cancel")
    assert (status, document["state"]) == (200, "cancelled")
    assert rig.aborted == [lease.message.message_id] == [running]
    status, document, _ = await rig.call("POST", f"/messages/{running}/cancel")
    assert (status, document["state"]) == (409, "cancelled")
    _, result, _ = await rig.call("GET", f"/interagent/results/{running}")
    assert result["success"] is False
    assert result["error"]


async def test_reprioritize(rig: ApiFixture) -> None:
    message = await queue(rig, "worker", "x")
    path = f"/messages/{message}/reprioritize"
    status, document, _ = await rig.call("POST", path, {"priority": "critical"})
    assert (status, document["priority"]) == (200, "critical")
    for body, field in (({}, "priority"), ({"priority": "soon"}, "priority")):
        status, document, _ = await rig.call("POST", path, body)
        assert (status, document["field"]) == (400, field)
    assert (await rig.call("POST", path))[0] == 415
    await rig.finish(await rig.lease("worker"), "done")
    assert (await rig.call("POST", path, {"priority": "low"}))[0] == 409


async def test_replay_makes_a_new_message(rig: ApiFixture) -> None:
    old = await queue(rig, "worker", "again")
    assert (await rig.call("POST", f"/messages/{old}/replay"))[0] == 409
    await rig.finish(await rig.lease("worker"), "done")
    status, document, _ = await rig.call("POST", f"/messages/{old}/replay")
    assert (status, document["replay_of"]) == (202, old)
    fresh = await rig.mailbox.messages.get(document["message_id"])
    assert (fresh.replay_of, fresh.text) == (old, "again")


async def dead_letter(rig: ApiFixture, text: str) -> str:
    """A message whose stack crashed once too often."""
    message = await queue(rig, "worker", text)
    for _ in range(2):
        await rig.lease("worker")
        await rig.mailbox.leases.release_all("ins_worker", culprits=None, text="stack went down")
    return message


async def test_what_was_set_aside_is_listed_shown_tried_again_and_dropped(rig: ApiFixture) -> None:
    def keep(tx: Tx) -> None:
        for number in (1, 2):
            update = {"update_id": number, "message": {"text": "odd"}}
            _, (row,) = received.store_tx(tx, "777", [update], at=number)
            stored.quarantine_tx(tx, row, "a chat without a type")

    await rig.database.write(keep)
    _, page, _ = await rig.call("GET", "/poison")
    assert [one["id"] for one in page["poison"]] == ["telegram.2", "telegram.1"]
    status, one, _ = await rig.call("GET", "/poison/telegram.1")
    assert (status, one["error"], one["raw"]["message"]) == (
        200,
        "a chat without a type",
        {"text": "odd"},
    )
    assert (await rig.call("POST", "/poison/telegram.1/retry"))[1]["state"] == "received"
    assert (await rig.call("POST", "/poison/telegram.2/drop"))[1]["state"] == "skipped"
    assert (await rig.call("POST", "/poison/telegram.2/drop"))[0] == 409
    assert (await rig.call("GET", "/poison"))[1]["poison"] == []
    for token in rig.agent_tokens.values():
        assert (await rig.call("GET", "/poison/telegram.1", token=token))[0] == 403


async def test_dead_letters_are_listed_requeued_and_dropped(rig: ApiFixture) -> None:
    first, second = await dead_letter(rig, "one"), await dead_letter(rig, "two")
    _, page, _ = await rig.call("GET", "/dead?limit=1")
    assert [m["id"] for m in page["dead"]] == [second]
    _, rest, _ = await rig.call("GET", f"/dead?agent=worker&cursor={page['next_cursor']}")
    assert [m["id"] for m in rest["dead"]] == [first]
    assert rest["dead"][0]["error"]
    status, document, _ = await rig.call("POST", f"/dead/{first}/requeue")
    assert (status, document["state"]) == (200, "queued")
    status, document, _ = await rig.call("POST", f"/dead/{second}/drop", {})
    assert (status, document["state"]) == (200, "cancelled")
    assert (await rig.call("POST", f"/dead/{second}/drop"))[0] == 409
    assert (await rig.call("POST", "/dead/none/requeue"))[0] == 404


async def test_a_question_is_answered_once(rig: ApiFixture) -> None:
    await queue(rig, "worker", "may I?")
    lease = await rig.lease("worker")
    suspended = Suspended(b"", "Really?", ("yes", "no"))
    asked = await rig.database.write(lambda tx: rig.mailbox.questions.park_tx(tx, lease, suspended))
    _, document, _ = await rig.call("GET", "/questions")
    assert [q["id"] for q in document["questions"]] == [asked.question_id]
    assert document["questions"][0]["options"] == ["yes", "no"]
    path = f"/questions/{asked.question_id}/answer"
    status, document, _ = await rig.call("POST", path, {"answer": "maybe"})
    assert (status, document["field"]) == (400, "answer")
    status, document, _ = await rig.call("POST", path, {"answer": "yes"})
    assert (status, document["state"], document["answered_by"]) == (200, "answered", "operator")
    status, document, _ = await rig.call("POST", path, {"answer": "no"})
    assert (status, document["code"]) == (409, "conflict")
    assert (await rig.call("GET", "/questions"))[1]["questions"] == []
    assert len((await rig.call("GET", "/questions?state=answered"))[1]["questions"]) == 1
    assert (await rig.call("POST", "/questions/none/answer", {"answer": "yes"}))[0] == 404


async def test_health_readiness_and_status(rig: ApiFixture) -> None:
    status, document, _ = await rig.call("GET", "/healthz", token=None)
    assert (status, document) == (200, {"status": "ok", "version": "0.test"})
    status, document, _ = await rig.call("GET", "/readyz", token=None)
    assert (status, document["ready"]) == (200, True)
    assert document["probes"] == [{"name": "store", "ok": True}]
    _, document, _ = await rig.call("GET", "/readyz")
    assert document["probes"][0]["detail"] == "last commit"
    rig.control.healthy = False
    status, document, _ = await rig.call("GET", "/readyz", token=None)
    assert (status, document["ready"]) == (503, False)
    _, document, _ = await rig.call("GET", "/status")
    assert (document["state"], document["boot_id"]) == ("running", "boot")
    status, text, headers = await rig.call("GET", "/metrics")
    assert (status, text) == (200, "agentsup_up 1\n")
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")


async def test_drain_is_confirmed_before_it_ends(rig: ApiFixture) -> None:
    status, document, _ = await rig.call("POST", "/drain")
    assert (status, document) == (202, {"success": True, "state": "draining"})
    assert rig.control.calls == [("drain", "", "operator")]
    assert rig.control.draining


async def test_a_drain_that_can_not_begin_is_told(
    rig: ApiFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentsup.model.errors import Conflict

    async def refuse(by: object) -> None:
        raise Conflict("already at it")

    monkeypatch.setattr(rig.control, "drain", refuse)
    status, document, _ = await rig.call("POST", "/drain")
    assert (status, document["detail"]) == (409, "already at it")
