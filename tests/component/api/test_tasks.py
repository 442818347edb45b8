"""Background work over HTTP: who may, what is answered, and what a program can rely on."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from agentsup.api.server import ApiServer
from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox.mail import Asker
from agentsup.mailbox.work.slots import SlotPool
from agentsup.model.message import DeliverTo, LaneName, Lease, NewMessage, text_parts
from agentsup.model.principal import OPERATOR, Principal, PrincipalKind
from tests.component.api.conftest import OPERATOR_TOKEN, ApiFixture

CREATE, LIST = "/tasks/create", "/tasks/list"


async def made(rig: ApiFixture, prompt: str = "count the birds", **more: Any) -> str:
    token = more.pop("token", OPERATOR_TOKEN)
    status, document, _ = await rig.call("POST", CREATE, {"prompt": prompt, **more}, token=token)
    assert status == 200, document
    return str(document["task_id"])


async def shown(rig: ApiFixture, task_id: str, token: str = OPERATOR_TOKEN) -> Any:
    status, document, _ = await rig.call("GET", f"/tasks/{task_id}", token=token)
    assert status == 200, document
    return document


async def test_from_creation_to_its_result(rig: ApiFixture) -> None:
    """Every member says what it means, in our words and in the predecessor's."""
    body = {"prompt": "count the\nbirds", "name": "birds", "agent": "Worker", "priority": "high"}
    status, document, _ = await rig.call("POST", CREATE, body)
    assert (status, document["success"], document["error"]) == (200, True, "")
    assert (document["state"], document["status"], document["name"]) == (
        "queued",
        "queued",
        "birds",
    )
    task_id, run_id = document["task_id"], document["run_id"]
    lease = await rig.lease("worker")
    assert (lease.message.text, lease.message.message_id) == ("count the\nbirds", run_id)
    assert (await shown(rig, task_id))["state"] == "running"
    await rig.finish(lease, "eleven birds")
    one = await shown(rig, task_id)
    expected = {
        "id": task_id,
        "task_id": task_id,
        "state": "done",
        "status": "done",
        "success": True,
        "agent": "worker",
        "agent_id": "agt_worker",
        "owner": "operator",
        "parent_agent": "",
        "prompt": "count the\nbirds",
        "prompt_preview": "count the birds",
        "result": "eleven birds",
        "text": "eleven birds",
        "result_preview": "eleven birds",
        "error": "",
        "priority": "high",
        "runs": 1,
        "question_count": 0,
        "schedule": None,
        "delivery": "none",
    }
    assert {name: one[name] for name in expected} == expected
    assert one["finished_at"] == one["completed_at"] >= one["started_at"] >= one["created_at"]
    assert one["elapsed_seconds"] == (one["finished_at"] - one["started_at"]) / 1000
    (run,) = one["run_list"]
    assert (run["id"], run["kind"], run["outcome"], run["result"]) == (
        run_id,
        "task",
        "ok",
        "eleven birds",
    )
    assert one["folder"].endswith(task_id)


async def test_a_failure_is_never_success(rig: ApiFixture) -> None:
    task_id = await made(rig, agent="worker")
    await rig.finish(await rig.lease("worker"), error="no birds anywhere")
    one = await shown(rig, task_id)
    assert (one["state"], one["success"], one["error"]) == ("failed", False, "no birds anywhere")


async def test_a_text_that_is_too_long_is_said_in_characters(rig: ApiFixture) -> None:
    status, document, _ = await rig.call("POST", CREATE, {"prompt": "x" * 200_001})
    assert (status, document["field"]) == (400, "prompt")
    assert document["error"].endswith("at most 200000 characters, not 200001")


async def test_the_owner_is_the_token(rig: ApiFixture) -> None:
    """``from`` is the operator's alone; an agent acts for itself, a run for its agent."""
    worker = rig.agent_tokens["worker"]
    status, document, _ = await rig.call(
        "POST", CREATE, {"prompt": "x", "from": "main"}, token=worker
    )
    assert (status, document["field"], document["success"]) == (403, "from", False)
    own = await made(rig, token=worker, **{"from": "WORKER"})
    run = rig.tokens.issue_run("agt_worker", "worker", "msg_1")
    assert (await shown(rig, own, run))["parent_agent"] == "worker"
    for_scout = await made(rig, **{"from": "scout"})
    one = await shown(rig, for_scout)
    assert (one["parent_agent"], one["agent"]) == ("Scout", "Scout")

    for method, path, body in (
        ("GET", f"/tasks/{for_scout}", None),
        ("GET", f"/tasks/{for_scout}/log", None),
        ("POST", "/tasks/cancel", {"task_id": for_scout}),
        ("POST", "/tasks/delete", {"task_id": for_scout}),
        ("POST", "/tasks/answer", {"task_id": for_scout, "answer": "x"}),
        ("POST", "/tasks/ask_parent", {"task_id": for_scout, "question": "x"}),
        ("POST", "/tasks/resume", {"task_id": for_scout, "prompt": "x"}),
        ("POST", "/tasks/update", {"task_id": for_scout, "progress": "x"}),
    ):
        status, document, _ = await rig.call(method, path, body, token=worker)
        assert (status, document["success"]) == (403, False), path
        assert "birds" not in str(document)
        if method == "GET":
            status, document, _ = await rig.call("GET", f"{path}?from=worker")
        else:
            status, document, _ = await rig.call(method, path, {**(body or {}), "from": "worker"})
        assert status == 403, f"the operator acts for worker: {path}"
    assert (await shown(rig, for_scout))["state"] == "queued"


async def test_an_unknown_task_and_an_unknown_agent_are_404(rig: ApiFixture) -> None:
    for method, path, body in (
        ("GET", "/tasks/task_nothing", None),
        ("GET", "/tasks/task_nothing/log", None),
        ("GET", "/tasks/msg_nothing", None),
        ("POST", "/tasks/cancel", {"task_id": "task_nothing"}),
        ("POST", "/tasks/delete", {"task_id": "task_nothing"}),
        ("POST", "/tasks/resume", {"task_id": "task_nothing", "prompt": "x"}),
        ("POST", "/tasks/ask_parent", {"task_id": "task_nothing", "question": "x"}),
        ("POST", "/tasks/answer", {"task_id": "task_nothing", "answer": "x"}),
        ("POST", "/tasks/update", {"task_id": "task_nothing", "percent": 1}),
        ("POST", CREATE, {"prompt": "x", "agent": "ghost"}),
        ("POST", CREATE, {"prompt": "x", "from": "ghost"}),
        ("GET", f"{LIST}?from=ghost", None),
        ("GET", f"{LIST}?agent=ghost", None),
    ):
        status, document, _ = await rig.call(method, path, body)
        assert (status, document["success"]) == (404, False), (path, document)


@pytest.mark.parametrize(
    "body, field",
    [
        ({}, "prompt"),
        ({"prompt": "  "}, "prompt"),
        ({"prompt": 7}, "prompt"),
        ({"prompt": "x", "promt": "y"}, "promt"),
        ({"prompt": "x", "thinking": "high"}, "thinking"),
        ({"prompt": "x", "provider": "claude"}, "provider"),
        ({"prompt": "x", "model": "opus"}, "model"),
        ({"prompt": "x", "priority": "urgent"}, "priority"),
        ({"prompt": "x", "timeout": 0}, "timeout"),
        ({"prompt": "x", "topic_id": 5}, "topic_id"),
        ({"prompt": "x", "schedule": {}}, "schedule"),
        ({"prompt": "x", "schedule": {"every": 5, "cron": "* * * * *"}}, "schedule"),
        ({"prompt": "x", "schedule": {"misfire": "never"}}, "schedule"),
    ],
)
async def test_what_is_wrong_is_named(rig: ApiFixture, body: dict[str, Any], field: str) -> None:
    status, document, _ = await rig.call("POST", CREATE, body)
    assert (status, document["field"], document["success"]) == (400, field, False)
    assert (await rig.call("GET", LIST))[1]["tasks"] == []


async def test_the_engine_that_the_agent_has_may_be_named(rig: ApiFixture) -> None:
    await made(rig, provider="Scripted", thinking="")


async def test_the_same_key_gives_the_same_task(rig: ApiFixture) -> None:
    first = await made(rig, idempotency_key="k1")
    assert await made(rig, idempotency_key="k1") == first
    await rig.finish(await rig.lease("main"), "done")
    assert await made(rig, idempotency_key="k1") == first, "also after its end"


async def test_a_key_is_apart_for_each_person_of_an_agents_turns(rig: ApiFixture) -> None:
    runs = {}
    for name in ("anna", "ben"):
        accepted = await rig.mailbox.queue.accept(
            NewMessage(
                agent_id="agt_Scout",  # type: ignore[arg-type]  # as below
                session_key=f"chat:web:{name}",
                parts=text_parts("please"),
                principal=Principal(PrincipalKind.PERSON, name),
                deliver_to=DeliverTo("chat", channel="web", conversation=name),
            )
        )
        runs[name] = rig.tokens.issue_run("agt_Scout", "Scout", accepted.message_id)
    sums = {n: await made(rig, idempotency_key="daily", token=t) for n, t in runs.items()}
    assert sums["anna"] != sums["ben"]
    for name in ("anna", "ben", "ben"):
        await made(rig, f"for {name}", idempotency_key="cats", token=runs[name], start=False)
    body = {"to": "worker", "message": "what is new?", "idempotency_key": "news"}
    for token in (*runs.values(), *runs.values()):
        status, document, _ = await rig.call("POST", "/interagent/send_async", body, token=token)
        assert status == 202, document
    again = {"task_id": sums["ben"], "prompt": "and now?", "idempotency_key": "r1"}
    await rig.call("POST", "/tasks/cancel", {"task_id": sums["ben"]})
    for _ in range(2):
        assert (await rig.call("POST", "/tasks/resume", again, token=runs["ben"]))[0] == 200
    assert (await shown(rig, sums["ben"]))["runs"] == 2
    sent = await rig.database.read(
        lambda r: r.all("SELECT person FROM messages WHERE agent_id = 'agt_worker' ORDER BY 1")
    )
    assert [row[0] for row in sent] == ["person:anna", "person:ben"], "each once"


async def test_the_operator_acts_for_an_agent_whoever_s_work_it_is(rig: ApiFixture) -> None:
    accepted = await rig.mailbox.queue.accept(
        NewMessage(
            agent_id="agt_Scout",  # type: ignore[arg-type]  # as below
            session_key="chat:web:anna",
            parts=text_parts("please"),
            principal=Principal(PrincipalKind.PERSON, "anna"),
            deliver_to=DeliverTo("chat", channel="web", conversation="anna"),
        )
    )
    run = rig.tokens.issue_run("agt_Scout", "Scout", accepted.message_id)
    annas = await made(rig, token=run, start=False)
    ours = await made(rig, start=False, **{"from": "scout"})
    status, document, _ = await rig.call("GET", f"{LIST}?from=scout")
    assert [one["task_id"] for one in document["tasks"]] == [ours, annas], status
    assert (await rig.call("GET", f"/tasks/{annas}?from=scout"))[0] == 200
    body = {"task_id": annas, "from": "scout"}
    assert (await rig.call("POST", "/tasks/update", {**body, "name": "birds"}))[0] == 200
    assert (await rig.call("GET", f"/tasks/{ours}", token=run))[0] == 403, "it is the operators'"


async def test_lists_come_in_pages_of_what_one_may_see(rig: ApiFixture) -> None:
    worker = rig.agent_tokens["worker"]
    mine = [await made(rig, f"mine {n}", token=worker, start=False) for n in range(5)]
    other = await made(rig, "another's", start=False)

    async def pages(path: str, token: str) -> list[str]:
        ids, cursor = [], ""
        while True:
            more = f"&cursor={cursor}" if cursor else ""
            status, document, _ = await rig.call("GET", f"{path}limit=2{more}", token=token)
            assert status == 200
            ids += [one["task_id"] for one in document["tasks"]]
            cursor = document["next_cursor"]
            if cursor is None:
                return ids

    newest = [*reversed(mine)]
    assert await pages(f"{LIST}?", worker) == newest
    assert await pages(f"{LIST}?from=worker&", OPERATOR_TOKEN) == newest
    assert await pages(f"{LIST}?", OPERATOR_TOKEN) == [other, *newest]
    assert await pages(f"{LIST}?agent=worker&", OPERATOR_TOKEN) == newest
    assert await pages(f"{LIST}?state=todo&", worker) == newest
    assert await pages(f"{LIST}?state=done,failed&", worker) == []
    status, document, _ = await rig.call("GET", f"{LIST}?state=odd")
    assert (status, document["field"]) == (400, "state")
    short = (await rig.call("GET", LIST))[1]["tasks"][0]
    assert "prompt" not in short
    assert short["prompt_preview"] == "another's"


async def test_a_message_s_id_is_answered_as_results_are(rig: ApiFixture) -> None:
    body = {"to": "worker", "message": "how many?"}
    sent = (await rig.call("POST", "/interagent/send_async", body))[1]["task_id"]
    for wait in ("", "?wait=0.01"):
        as_task = await rig.call("GET", f"/tasks/{sent}{wait}")
        as_result = await rig.call("GET", f"/interagent/results/{sent}")
        assert as_task[:2] == as_result[:2]
    await rig.finish(await rig.lease("worker"), "nine")
    document = (await rig.call("GET", f"/tasks/{sent}"))[1]
    assert (document["text"], document["success"]) == ("nine", True)
    assert (await rig.call("GET", f"/tasks/{sent}", token=rig.agent_tokens["Scout"]))[0] == 403


async def working(rig: ApiFixture, **more: Any) -> tuple[str, Lease]:
    task_id = await made(rig, agent="worker", **more)
    return task_id, await rig.lease("worker")


async def test_ask_parent_waits_for_the_answer_and_goes_on_with_it(rig: ApiFixture) -> None:
    """The run's own token asks; the answer is an instruction to finish, and the task waits."""
    task_id, lease = await working(rig)
    run = rig.tokens.issue_run("agt_worker", "worker", lease.message.message_id)
    question = {"task_id": task_id, "question": "Sparrows too?", "options": ["yes", "no"]}
    status, document, _ = await rig.call("POST", "/tasks/ask_parent", question, token=run)
    assert (status, document["success"], document["state"]) == (200, True, "waiting")
    assert "End your turn now" in document["answer"]
    repeated = (await rig.call("POST", "/tasks/ask_parent", question, token=run))[1]
    assert repeated["question_id"] == document["question_id"]
    one = await shown(rig, task_id)
    assert (one["last_question"], one["question_count"]) == ("Sparrows too?", 1)
    assert one["questions"][0]["options"] == ["yes", "no"]

    wrong = {"task_id": task_id, "answer": "perhaps"}
    assert (await rig.call("POST", "/tasks/answer", wrong))[0] == 400
    right = {"task_id": task_id, "answer": "yes", "question_id": document["question_id"]}
    status, answered, _ = await rig.call("POST", "/tasks/answer", right)
    assert (status, answered["answer"], answered["success"]) == (200, "yes", True)
    assert (await rig.call("POST", "/tasks/answer", right))[0] == 409
    assert (await rig.call("POST", "/tasks/answer", {"task_id": task_id, "answer": "x"}))[0] == 404


async def test_who_has_ended_asks_nothing(rig: ApiFixture) -> None:
    task_id, lease = await working(rig)
    await rig.finish(lease, "done")
    body = {"task_id": task_id, "question": "really?"}
    status, document, _ = await rig.call("POST", "/tasks/ask_parent", body)
    assert (status, document["success"]) == (409, False)


async def test_resume_cancel_and_delete_as_the_state_allows(rig: ApiFixture) -> None:
    task_id, _ = await working(rig)
    target = {"task_id": task_id}
    for path, body in (("delete", target), ("resume", {**target, "prompt": "go on"})):
        status, document, _ = await rig.call("POST", f"/tasks/{path}", body)
        assert (status, document["success"], document["state"]) == (409, False, "running"), path
    status, document, _ = await rig.call("POST", "/tasks/cancel", target)
    assert (status, document["success"], document["state"]) == (200, True, "cancelled")
    assert rig.aborted == [document["run_id"]], "its turn is ended"
    assert (await rig.call("POST", "/tasks/cancel", target))[0] == 409
    status, document, _ = await rig.call("POST", "/tasks/resume", {**target, "prompt": "again"})
    assert (status, document["state"]) == (200, "queued")
    lease = await rig.lease("worker")
    assert lease.message.text == "again"
    await rig.finish(lease, "now it is done")
    one = await shown(rig, task_id)
    assert (one["runs"], one["session_id"]) == (2, lease.message.session_id)
    assert len({run["session"] for run in one["run_list"]}) == 1, "in the session it was in"
    status, document, _ = await rig.call("POST", "/tasks/delete", target)
    assert (status, document) == (200, {"success": True, "error": "", "task_id": task_id})
    assert (await rig.call("GET", f"/tasks/{task_id}"))[0] == 404


async def test_update_tells_how_far_it_is(rig: ApiFixture) -> None:
    task_id, lease = await working(rig)
    worker = rig.tokens.issue_run("agt_worker", "worker", lease.message.message_id)
    told = {"task_id": task_id, "progress": "half", "percent": 50, "note": "Seen: nine."}
    assert (await rig.call("POST", "/tasks/update", told, token=worker))[0] == 200
    one = await shown(rig, task_id)
    assert (one["progress"], one["percent"], one["state"]) == ("half", 50, "running")
    notes = rig.deps.tasks.folder_of(task_id) / "TASKMEMORY.md"  # type: ignore[union-attr]  # the rig has one
    assert "Seen: nine." in notes.read_text()
    named = {"task_id": task_id, "name": "mine now"}
    assert (await rig.call("POST", "/tasks/update", named, token=worker))[0] == 403
    assert (await rig.call("POST", "/tasks/update", named))[1]["name"] == "mine now"
    assert (await rig.call("POST", "/tasks/update", {"task_id": task_id}))[0] == 400
    done = {"task_id": task_id, "state": "done"}
    assert (await rig.call("POST", "/tasks/update", done))[0] == 409, "its run says how it ended"
    events = (await rig.call("GET", f"/tasks/{task_id}/log"))[1]["events"]
    assert next(e["type"] for e in events if e["type"].startswith("task.")) == "task.created"
    assert any(e["type"] == "task.progress" and e["data"]["percent"] == 50 for e in events)


async def test_a_schedule_is_shown_paused_and_ended(rig: ApiFixture) -> None:
    task_id = await made(rig, schedule={"cron": "30 8 * * *", "timezone": "Europe/Berlin"})
    one = (await shown(rig, task_id))["schedule"]
    assert (one["kind"], one["spec"], one["timezone"]) == ("cron", "30 8 * * *", "Europe/Berlin")
    assert one["next_at"] > rig.deps.clock.now_ms()
    rest = {"task_id": task_id, "paused": True}
    assert (await rig.call("POST", "/tasks/update", rest))[0] == 200
    assert (await shown(rig, task_id))["schedule"]["paused"] is True
    plain = {"task_id": await made(rig, start=False), "paused": True}
    assert (await rig.call("POST", "/tasks/update", plain))[0] == 404
    assert (await rig.call("POST", "/tasks/cancel", {"task_id": task_id}))[0] == 200
    after = (await shown(rig, task_id))["schedule"]
    assert after is None or after["next_at"] is None
    status, document, _ = await rig.call(
        "POST", CREATE, {"prompt": "x", "schedule": {"cron": "odd"}}
    )
    assert (status, document["success"]) == (400, False)


async def test_a_wait_ends_with_the_run_or_its_question(rig: ApiFixture) -> None:
    owner = TaskOwner("test")
    task_id, lease = await working(rig)
    waiting = owner.spawn(rig.call("GET", f"/tasks/{task_id}?wait=15"), name="test:wait")
    await rig.until_open("waits", 1)
    asked = {"task_id": task_id, "question": "Sparrows too?"}
    assert (await rig.call("POST", "/tasks/ask_parent", asked))[0] == 200
    assert (await waiting)[1]["state"] == "waiting"
    task_id, lease = await working(rig)
    waiting = owner.spawn(rig.call("GET", f"/tasks/{task_id}?wait=15"), name="test:wait")
    await rig.until_open("waits", 1)
    await rig.finish(lease, "eleven")
    assert (await waiting)[1]["result"] == "eleven"
    task_id, lease = await working(rig)
    early = (await rig.call("GET", f"/tasks/{task_id}?wait=0.05"))[1]
    assert (early["state"], early["success"]) == ("running", None)


async def test_a_wait_for_an_end_reads_no_more_than_the_card(
    rig: ApiFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = TaskOwner("test")
    task_id, lease = await working(rig)
    reads = rig.count_reads(monkeypatch, "tasks.")
    waiting = owner.spawn(rig.call("GET", f"/tasks/{task_id}?wait=15"), name="test:wait")
    while len(reads) < 2:
        await asyncio.sleep(0)
    await rig.finish(lease, "eleven")
    assert (await waiting)[1]["result"] == "eleven"
    assert reads == ["tasks.get", "tasks.get", "tasks.card"]


async def test_a_turn_s_task_goes_back_to_that_turn(rig: ApiFixture) -> None:
    """What a run's token creates while its turn runs comes back into that turn's session."""
    chat = DeliverTo("chat", agent_id="agt_worker", channel="telegram", conversation="77/5")
    accepted = await rig.mailbox.queue.accept(
        NewMessage(
            agent_id="agt_worker",  # type: ignore[arg-type]  # an id is a text in all but name
            session_key="chat:telegram:77/5",
            parts=text_parts("please"),
            principal=OPERATOR,
            deliver_to=chat,
        )
    )
    lease = await rig.lease("worker")
    slots = SlotPool(dict.fromkeys(LaneName, 2), lambda: None)
    rig.askers["agt_worker"] = Asker(lease, slots.take(lease.message.lane))
    run = rig.tokens.issue_run("agt_worker", "worker", accepted.message_id)
    task_id = await made(rig, token=run)
    del rig.askers["agt_worker"]
    one = await shown(rig, task_id)
    assert one["deliver_to"]["session_id"] == lease.message.session_id
    assert (one["chat_id"], one["topic_id"]) == ("77", "5")
    named = await made(rig, token=run, chat_id=77, topic_id="5")
    to = (await shown(rig, named))["deliver_to"]
    assert (to["kind"], to["session_id"], to["then"]["channel"]) == (
        "mailbox",
        lease.message.session_id,
        "telegram",
    )
    plain = (await shown(rig, await made(rig, chat_id=77, topic_id=5, agent="worker")))[
        "deliver_to"
    ]
    assert (plain["kind"], plain["channel"], plain["conversation"]) == ("chat", "telegram", "77/5")


async def test_without_tasks_every_route_says_so(rig: ApiFixture) -> None:
    """Also before it looks at a body, and for ids of messages."""
    server = ApiServer(replace(rig.deps, tasks=None), port=0)
    await server.start()
    try:
        for method, path in (
            *(("POST", f"/tasks/{verb}") for verb in ("create", "resume", "ask_parent", "answer")),
            *(("POST", f"/tasks/{verb}") for verb in ("cancel", "delete", "update")),
            ("GET", LIST),
            ("GET", "/tasks/task_1"),
            ("GET", "/tasks/msg_1"),
            ("GET", "/tasks/task_1/log"),
        ):
            headers = {"Authorization": f"Bearer {OPERATOR_TOKEN}"}
            json: dict[str, str] | None = {} if method == "POST" else None
            async with rig.client.request(
                method, server.url + path, json=json, headers=headers
            ) as response:
                document = await response.json(content_type=None)
                assert (response.status, document["success"]) == (503, False), path
                assert "tasks are not enabled" in document["error"]
                assert response.headers["Retry-After"] == "3600"
    finally:
        await server.close()


async def test_new_work_is_refused_while_draining(rig: ApiFixture) -> None:
    task_id = await made(rig, start=False)
    rig.control.is_draining = True
    for path, body in ((CREATE, {"prompt": "x"}), ("/tasks/resume", {"task_id": task_id})):
        assert (await rig.call("POST", path, body))[0] == 503, path
    assert (await rig.call("POST", "/tasks/cancel", {"task_id": task_id}))[0] == 200
