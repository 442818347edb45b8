"""Every route, for every kind of caller: who may use it, and that nobody below operator reads from
it what others have said, why their work failed, or where things lie (P7).

A route that is not in the tables fails: whoever adds one says here who may use it, and how somebody
else would try to read others' words from it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import WSMsgType

from agentsup.api.server.listener import ROUTES
from agentsup.mailbox.delivery import outbox
from agentsup.mailbox.messages import Completion
from agentsup.model.control import AgentView, DaemonView
from agentsup.model.engine import Suspended
from agentsup.model.event import EventType
from agentsup.model.message import DeliverTo, MessageOutcome, NewMessage, text_parts
from agentsup.model.principal import PersonRole, Principal, PrincipalKind
from agentsup.model.task import NewTask
from agentsup.store import Tx, append
from tests.component.api.browser import Browser
from tests.component.api.conftest import OPERATOR_TOKEN, ApiFixture

SECRET = "her-secret-words"
HOME = "/home/of/the/house"
CHAT_ID = "telegram-4711"
"""Where she writes from; nobody else's to know."""

NOBODY, ENGINE, VIEWER, USER, OPERATOR = "nobody", "engine", "viewer", "user", "operator"
EVERYBODY = (NOBODY, ENGINE, VIEWER, USER, OPERATOR)
TOKENS = (ENGINE, OPERATOR)
PEOPLE = (VIEWER, USER, OPERATOR)
WRITERS = (USER, OPERATOR)
ALONE = (OPERATOR,)

WHO: Mapping[str, tuple[str, ...]] = {
    "GET /healthz": EVERYBODY,
    "GET /readyz": EVERYBODY,
    "GET /status": PEOPLE,
    "POST /drain": ALONE,
    "POST /restart": ALONE,
    "GET /metrics": ALONE,
    "GET /openapi.json": TOKENS,
    "GET /hooks": ALONE,
    "GET /pairings": ALONE,
    "POST /pairings/let_in": ALONE,
    "POST /pairings/refuse": ALONE,
    "POST /agents": ALONE,
    "GET /setup": ALONE,
    "POST /setup/models": ALONE,
    "POST /setup/test": ALONE,
    "POST /setup/model": ALONE,
    "POST /setup/bot": ALONE,
    "POST /web/blocks": PEOPLE,
    "POST /web/sessions/rename": WRITERS,
    "POST /setup/program": ALONE,
    "POST /setup/operator": ALONE,
    "GET /agents/{name}/mcp": ALONE,
    "GET /agents/{name}/memory": ALONE,
    "POST /agents/{name}/memory/pin": ALONE,
    "POST /agents/{name}/memory/forget": ALONE,
    "POST /agents/{name}/memory/share": ALONE,
    "POST /agents/{name}/memory/import": ALONE,
    "POST /agents/{name}/memory/prune": ALONE,
    "GET /roles": ALONE,
    "GET /cost": TOKENS,
    "POST /route": ALONE,
    "POST /mcp": (ENGINE,),
    "POST /mcp/{token}": (ENGINE,),
    "POST /tasks/create": TOKENS,
    "POST /tasks/resume": TOKENS,
    "POST /tasks/ask_parent": TOKENS,
    "POST /tasks/answer": TOKENS,
    "POST /tasks/cancel": TOKENS,
    "POST /tasks/delete": TOKENS,
    "POST /tasks/update": TOKENS,
    "GET /tasks/list": TOKENS,
    "GET /tasks/{id}": TOKENS,
    "GET /tasks/{id}/log": TOKENS,
    "POST /interagent/send": TOKENS,
    "POST /interagent/send_async": TOKENS,
    "GET /interagent/results/{id}": TOKENS,
    "GET /interagent/agents": TOKENS,
    "GET /interagent/health": TOKENS,
    "GET /agents": PEOPLE,
    "GET /agents/{name}": PEOPLE,
    "GET /agents/{name}/explain": ALONE,
    "GET /agents/{name}/overrides": ALONE,
    "POST /agents/{name}/overrides": ALONE,
    "GET /agents/{name}/chat_models": ALONE,
    "POST /agents/{name}/chat_models": ALONE,
    "POST /agents/{name}/start": ALONE,
    "POST /agents/{name}/bot": ALONE,
    "POST /agents/{name}/stop": ALONE,
    "POST /agents/{name}/restart": ALONE,
    "GET /diff": ALONE,
    "POST /stop_all": ALONE,
    "GET /messages": PEOPLE,
    "GET /messages/{id}": PEOPLE,
    "GET /threads/{id}": PEOPLE,
    "POST /messages/{id}/cancel": WRITERS,
    "POST /messages/{id}/reprioritize": ALONE,
    "POST /messages/{id}/replay": ALONE,
    "POST /messages/{id}/reassign": ALONE,
    "GET /mail": ALONE,
    "POST /mail/read": ALONE,
    "GET /dead": PEOPLE,
    "POST /dead/{id}/requeue": ALONE,
    "POST /dead/{id}/drop": ALONE,
    "GET /questions": PEOPLE,
    "GET /questions/{id}": PEOPLE,
    "POST /questions/{id}/answer": WRITERS,
    "GET /approvals": ALONE,
    "GET /traces": PEOPLE,
    "GET /traces/metrics": ALONE,
    "GET /traces/{id}": PEOPLE,
    "POST /approvals/revoke": ALONE,
    "GET /poison": ALONE,
    "GET /poison/{id}": ALONE,
    "POST /poison/{id}/retry": ALONE,
    "POST /poison/{id}/drop": ALONE,
    "GET /events": PEOPLE,
    "GET /ws": PEOPLE,
    "POST /web/login": EVERYBODY,
    "GET /web/session": PEOPLE,
    "POST /web/logout": PEOPLE,
    "POST /web/logout_everywhere": PEOPLE,
    "POST /web/links": PEOPLE,
    "GET /web/people": ALONE,
    "GET /": EVERYBODY,
    "GET /page/{name}": EVERYBODY,
    "GET /web/words/{language}": EVERYBODY,
    "GET /web/export": PEOPLE,
    "GET /web/history": PEOPLE,
    "GET /web/sessions": PEOPLE,
    "POST /web/sessions": WRITERS,
    "POST /web/sessions/switch": WRITERS,
    "POST /web/uploads": WRITERS,
    "GET /web/files/{outbox_id}": PEOPLE,
    "GET /web/sent/{id}/{number}": PEOPLE,
    "GET /web/figures": PEOPLE,
    "GET /agents/{name}/log": ALONE,
    "POST /v1/chat/completions": ALONE,
    "GET /v1/models": ALONE,
    "GET /v1/models/{name}": ALONE,
}
"""Who may use a route. A person comes with the page's secret, the operator with the token."""

NOT_TRIED = {
    "POST /web/logout",
    "POST /web/logout_everywhere",
}
"""They end the sessions that the others come with, and answer nothing."""

SPECIAL = {"GET /events", "GET /ws"}
"""Read in a way of their own."""

HERS: Mapping[str, tuple[tuple[str, Any], ...]] = {
    "GET /messages": (("/messages?session={session}", None), ("/messages?state=dead", None)),
    "GET /questions": (("/questions", None), ("/questions?state=answered", None)),
    "GET /interagent/results/{id}": (
        ("/interagent/results/{chat}", None),
        ("/interagent/results/{failed}", None),
    ),
    "GET /messages/{id}": (
        ("/messages/{chat}", None),
        ("/messages/{behind}", None),
        ("/messages/{failed}", None),
        ("/messages/{dead}", None),
        ("/messages/{asking}", None),
    ),
    "GET /agents/{name}": (("/agents/ben", None), ("/agents/main", None)),
    "GET /web/export": (
        ("/web/export?agent=main&conversation=ute", None),
        ("/web/export?agent=main&conversation=vera&format=json", None),
    ),
    "GET /web/history": (
        ("/web/history?agent=main&conversation=ute", None),
        ("/web/history?agent=main&conversation=uwe&session={session}", None),
        ("/web/history?agent=main&conversation=vera&session={session}", None),
    ),
    "GET /web/sessions": (
        ("/web/sessions?agent=main&conversation=ute", None),
        ("/web/sessions?agent=main&conversation=uwe", None),
        ("/web/sessions?agent=main&conversation=vera", None),
    ),
    "POST /web/sessions": (("/web/sessions", {"agent": "main", "conversation": "ute"}),),
    "POST /web/sessions/switch": (
        (
            "/web/sessions/switch",
            {"agent": "main", "conversation": "uwe", "session": "{session}"},
        ),
        (
            "/web/sessions/switch",
            {"agent": "main", "conversation": "uwe", "session": "{far_session}"},
        ),
    ),
    "GET /web/files/{outbox_id}": (("/web/files/{file}", None), ("/web/files/{far_file}", None)),
    "GET /web/sent/{id}/{number}": (("/web/sent/{chat}/0", None), ("/web/sent/{far}/0", None)),
    "POST /interagent/send": (("/interagent/send", {"to": "ben", "message": "how are you?"}),),
    "POST /interagent/send_async": (
        ("/interagent/send_async", {"to": "ben", "message": "how are you?"}),
    ),
    "GET /questions/{id}": (("/questions/{question}", None), ("/questions/{answered}", None)),
    "POST /questions/{id}/answer": (
        ("/questions/{question}/answer", {"answer": "red"}),
        ("/questions/{answered}/answer", {"answer": "red"}),
    ),
    "POST /messages/{id}/reprioritize": (("/messages/{chat}/reprioritize", {"priority": "high"}),),
    "POST /messages/{id}/reassign": (("/messages/{chat}/reassign", {"to": "ben"}),),
    "GET /mail": (("/mail?agent=main", None), ("/mail?agent=main&unread=true", None)),
    "POST /mail/read": (
        ("/mail/read", {"agent": "main", "message_ids": ["{letter}"]}),
        ("/mail/read", {"agent": "main", "all": True}),
    ),
    "POST /tasks/create": (("/tasks/create", {"prompt": "x", "parent_task_id": "{task}"}),),
    "POST /tasks/resume": (("/tasks/resume", {"task_id": "{task}", "prompt": "go on"}),),
    "POST /tasks/ask_parent": (("/tasks/ask_parent", {"task_id": "{task}", "question": "x"}),),
    "POST /tasks/answer": (("/tasks/answer", {"task_id": "{task}", "answer": "red"}),),
    "POST /tasks/cancel": (("/tasks/cancel", {"task_id": "{task}"}),),
    "POST /tasks/delete": (("/tasks/delete", {"task_id": "{other_task}"}),),
    "POST /tasks/update": (("/tasks/update", {"task_id": "{task}", "percent": 1}),),
    "GET /tasks/list": (("/tasks/list", None), ("/tasks/list?from=main", None)),
    "GET /tasks/{id}": (
        ("/tasks/{chat}", None),
        ("/tasks/{task}", None),
        ("/tasks/{task}?from=main", None),
    ),
    "GET /tasks/{id}/log": (("/tasks/{task}/log", None),),
    "POST /web/links": (("/web/links", {"person": "ute"}),),
    "POST /web/login": (("/web/login", {"code": "unknown"}),),
    "GET /web/words/{language}": (("/web/words/de", None),),
    "POST /web/uploads": (("/web/uploads?agent=main&name=a.txt", None),),
    "POST /v1/chat/completions": (
        ("/v1/chat/completions", {"model": "ben", "messages": [{"role": "user", "content": "x"}]}),
    ),
}
"""How somebody else would try: requests about her things. Routes without an entry are tried as they
stand, with her ids in their places."""

PLACES = {
    "GET /threads/{id}": "chat",
    "POST /messages/{id}/cancel": "chat",
    "POST /messages/{id}/replay": "failed",
    "POST /dead/{id}/requeue": "dead",
    "POST /dead/{id}/drop": "dead",
    "GET /poison/{id}": "poison",
    "POST /poison/{id}/retry": "poison",
    "POST /poison/{id}/drop": "poison",
    "GET /traces/{id}": "chat",
}

READ_BY_OPERATORS = (
    "GET /messages",
    "GET /messages/{id}",
    "GET /threads/{id}",
    "GET /mail",
    "GET /dead",
    "GET /questions",
    "GET /agents",
    "GET /status",
    "GET /poison",
    "GET /web/history",
    "GET /web/sessions",
    "GET /interagent/results/{id}",
    "GET /interagent/health",
    "GET /tasks/list",
    "GET /tasks/{id}",
    "GET /tasks/{id}/log",
    "GET /traces/{id}",
)
"""Where the words are, so that a walk which finds none has looked."""


def test_every_route_is_in_the_table() -> None:
    named = {f"{route.method} {route.path}" for route in ROUTES}
    assert named == set(WHO), "say who may use it, and how others' words might be read from it"
    assert set(HERS) | set(PLACES) | NOT_TRIED | SPECIAL | set(READ_BY_OPERATORS) <= named
    placeless = {name for name in named if "{" in name and name not in {*HERS, *PLACES}}
    free = ("{name}", "{language}", "{token}")
    assert all(any(each in name for each in free) for name in placeless), placeless


# -- her things ------------------------------------------------------------------------------------


@dataclass
class Fixture:
    """Ute's words lie everywhere."""

    rig: ApiFixture
    things: dict[str, str]


async def furnished(rig: ApiFixture, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Fixture:
    main, worker = "agt_main", "agt_worker"
    ute = Principal(PrincipalKind.PERSON, "ute", "ute", PersonRole.USER)
    far = Principal(PrincipalKind.PERSON, CHAT_ID, "Far", PersonRole.USER)
    things: dict[str, str] = {}

    async def said(text: str, key: str, to: DeliverTo, by: Principal = ute) -> str:
        message = NewMessage(
            agent_id=main,  # type: ignore[arg-type]  # an id is a text in all but name
            session_key=key,
            parts=text_parts(text),
            principal=by,
            deliver_to=to,
            summary=SECRET,
        )
        accepted = await rig.mailbox.queue.accept(message)
        return str(accepted.message_id)

    here = DeliverTo("chat", agent_id=main, channel="web", conversation="ute")
    there = DeliverTo("chat", agent_id=main, channel="telegram", conversation=CHAT_ID)
    things["chat"] = await said(SECRET, "chat:web:ute", here)
    lease = await rig.lease("main")
    things["session"] = lease.message.session_id
    await rig.mailbox.leases.complete(
        lease, Completion(MessageOutcome.OK, text=f"answer to {SECRET}")
    )
    things["failed"] = await said(SECRET, "chat:web:ute", here)
    await rig.finish(await rig.lease("main"), error=f"could not do {SECRET} in {HOME}")
    things["far"] = await said(SECRET, f"chat:telegram:{CHAT_ID}", there, far)
    lease = await rig.lease("main")
    things["far_session"] = lease.message.session_id
    await rig.finish(lease, SECRET)
    things["dead"] = await said(SECRET, "dying", here)
    lease = await rig.lease("main")
    await rig.mailbox.leases.release_all("ins_main", culprits=None, text=f"crashed on {SECRET}")
    lease = await rig.lease("main")
    await rig.mailbox.leases.release_all("ins_main", culprits=None, text=f"crashed on {SECRET}")
    for name in ("answered", "question"):
        things["asking"] = await said(SECRET, f"asking {name}", here)
        lease = await rig.lease("main")
        asked = Suspended(checkpoint=b"", text=f"about {SECRET}?", options=("red", SECRET))
        question = await rig.database.write(
            lambda tx, lease=lease, asked=asked: rig.mailbox.questions.park_tx(tx, lease, asked)  # type: ignore[misc]  # bound at once
        )
        things[name] = question.question_id
    await rig.mailbox.questions.answer(things["answered"], SECRET, ute)
    things["behind"] = await said("and more", "asking question", here)
    await rig.database.write(lambda tx: _written(tx, things, main, worker))
    assert rig.deps.tasks is not None
    for name in ("task", "other_task"):
        new = NewTask(f"task about {SECRET}", name=SECRET, agent="main", deliver_to=here)
        task = await rig.deps.tasks.create(new, caller=ute)
        things[name] = task.task_id
        lease = await rig.lease("main")
        await rig.mailbox.leases.complete(
            lease, Completion(MessageOutcome.OK, text=f"result of {SECRET}")
        )
    letter = NewMessage(
        agent_id=main,  # type: ignore[arg-type]  # as above
        session_key="ia-worker",
        parts=text_parts(SECRET),
        principal=Principal(PrincipalKind.AGENT, worker, "worker"),
        sender_agent_id=worker,
    )
    things["letter"] = str((await rig.mailbox.queue.accept(letter)).message_id)
    rig.directory.add("ben", "failed", f"EngineCrash: boom over {SECRET} in {HOME}")
    _troubled(rig, monkeypatch)
    (folder / "agentsup.log").write_text(json.dumps({"agent": "main", "event": SECRET}) + "\n")
    return Fixture(rig, things)


def _written(tx: Tx, things: dict[str, str], main: str, worker: str) -> None:
    tx.execute("UPDATE sessions SET title = ?", (SECRET,))
    for name, channel, conversation in (
        ("file", "web", "ute"),
        ("far_file", "telegram", CHAT_ID),
    ):
        number = outbox.add_tx(
            tx,
            message_id=things["chat"],
            agent_id=main,
            channel=channel,
            conversation=conversation,
            kind="file",
            body={"path": f"{HOME}/{SECRET}", "name": SECRET},
            at=1,
        )
        tx.execute("UPDATE outbox SET state = 'delivered' WHERE outbox_id = ?", (number,))
        things[name] = str(number)
    tx.execute(
        "UPDATE messages SET started_at = 1, error_text = ?, traceparent = ? WHERE message_id = ?",
        (f"{SECRET} in {HOME}", f"00-{'ab' * 16}-{'ab' * 8}-01", things["chat"]),
    )
    tx.execute(
        "INSERT INTO tool_calls (call_id, message_id, name, effect, args_hash, state, started_at)"
        " VALUES ('call', ?, ?, 'blind', '', 'done', 1)",
        (things["chat"], SECRET),
    )
    cursor = tx.execute(
        "INSERT INTO received (channel, bot_id, account, external_id, raw, state, error, at)"
        " VALUES ('telegram', '1', '1', '1', ?, 'quarantined', ?, 1)",
        (json.dumps({"text": SECRET, "chat": CHAT_ID}), SECRET),
    )
    things["poison"] = f"telegram.{cursor.lastrowid}"
    for kind, conversation in (
        (EventType.CHAT_IN, "web:ute"),
        (EventType.CHAT_OUT, "web:ute"),
        (EventType.CHAT_OUT, f"telegram:{CHAT_ID}"),
        (EventType.AGENT_STATE, ""),
        (EventType.CONFIG_REFUSED, ""),
        (EventType.MESSAGE_DEAD, ""),
    ):
        append(
            tx,
            kind,
            at=1,
            agent_id=main,
            session_id=things["session"],
            message_id=things["chat"],
            conversation=conversation,
            data={"text": SECRET, "reason": f"{SECRET} in {HOME}"},
        )


def _troubled(rig: ApiFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon and its agents have something to say about her, too."""
    view, status = rig.control._view, rig.control.status

    def told(entry: Any) -> AgentView:
        return replace(view(entry), warnings=(f"{SECRET} in {HOME}",), work=(SECRET,))

    async def house() -> DaemonView:
        error = f"{HOME}/agents.json: {SECRET}"
        return replace(await status(), home=HOME, config_error=error, warnings=(SECRET,))

    monkeypatch.setattr(rig.control, "_view", told)
    monkeypatch.setattr(rig.control, "status", house)


@pytest.fixture
async def house(rig: ApiFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Fixture:
    return await furnished(rig, monkeypatch, tmp_path)


# -- callers ---------------------------------------------------------------------------------------


async def headers_of(rig: ApiFixture, who: str) -> dict[str, str]:
    """What a caller of that kind comes with."""
    if who == NOBODY:
        return {}
    if who == OPERATOR:
        return {"Authorization": f"Bearer {OPERATOR_TOKEN}"}
    if who == ENGINE:
        return {"Authorization": f"Bearer {rig.tokens.issue_run('agt_worker', 'worker', 'msg_1')}"}
    browser = Browser(rig)
    await browser.sign_in({VIEWER: "vera", USER: "uwe"}[who])
    return browser.headers(is_post=True)


def tries(name: str, things: Mapping[str, str]) -> list[tuple[str, Any]]:
    """The requests about her things on one route."""
    method, path = name.split()
    if name in HERS:
        found = list(HERS[name])
    else:
        ids = dict.fromkeys(("id", "number", "outbox_id"), things[PLACES.get(name, "chat")])
        found = [
            (
                path.format(name="ben", language="en", token="no", **ids),
                {} if method == "POST" else None,
            )
        ]
    return [
        (path.format(**things), json.loads(_filled(json.dumps(body), things)))
        for path, body in found
    ]


def _filled(text: str, things: Mapping[str, str]) -> str:
    for name, value in things.items():
        text = text.replace("{" + name + "}", value)
    return text


async def asked(rig: ApiFixture, method: str, path: str, body: Any, headers: dict[str, str]) -> Any:
    """Status and everything that comes back."""
    async with rig.client.request(
        method, rig.url + path, json=body if method == "POST" else None, headers=headers
    ) as response:
        return response.status, (await response.read()).decode() + str(dict(response.headers))


async def streamed(rig: ApiFixture, path: str, headers: dict[str, str]) -> Any:
    """An event stream until it says that nothing is left."""
    while True:
        async with rig.client.get(rig.url + path, headers=headers) as response:
            if response.status == 429:  # the place of the stream before is not given back yet
                await response.read()
                continue
            text = ""
            async for line in response.content:
                text += line.decode()
                if response.status != 200 or text.endswith(": alive\n"):
                    break
            return response.status, text


async def chatted(rig: ApiFixture, conversation: str, headers: dict[str, str]) -> Any:
    """All frames that come to a socket which wants into a conversation."""
    hello = {"type": "hello", "agent": "main", "channel": "web", "conversation": conversation}
    text = ""
    async with rig.client.ws_connect(f"{rig.url}/ws", headers=headers) as socket:
        await socket.send_json({**hello, "after": None})
        await socket.send_json({"type": "ping"})
        while (message := await socket.receive()).type is WSMsgType.TEXT:
            text += message.data
            if message.json()["type"] == "pong":
                break
    return 101, text


# -- the walks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(WHO))
async def test_who_may_use_it(rig: ApiFixture, name: str) -> None:
    method, path = name.split()
    at = path.format(
        name="nobody", id="nothing", outbox_id="0", number="0", language="en", token="no"
    )
    for who in (NOBODY, ENGINE, VIEWER, USER, OPERATOR):
        headers = await headers_of(rig, who)
        async with rig.client.request(method, rig.url + at, headers=headers) as response:
            status, is_refused = response.status, response.status in (401, 403)
        may = who in WHO[name]
        assert is_refused != may, (who, status)


async def everything(house: Fixture, who: str) -> dict[str, str]:
    """What one caller gets to read, by route."""
    rig, got = house.rig, {}
    headers = await headers_of(rig, who)
    for name in sorted(set(WHO) - NOT_TRIED - SPECIAL, key=lambda name: (name[:3] != "GET", name)):
        answers = [
            await asked(rig, name.split()[0], path, body, headers)
            for path, body in tries(name, house.things)
        ]
        assert all(status < 500 or status == 503 for status, _ in answers), (name, answers)
        got[name] = "".join(text for _, text in answers)
    return got


@pytest.mark.parametrize("who", [NOBODY, ENGINE, VIEWER, USER])
async def test_nobody_below_operator_reads_what_others_said(house: Fixture, who: str) -> None:
    for name, text in (await everything(house, who)).items():
        for secret in (SECRET, HOME, CHAT_ID):
            assert secret not in text, (name, text)


@pytest.mark.parametrize("who", [VIEWER, USER])
async def test_streams_and_sockets_keep_others_words(house: Fixture, who: str) -> None:
    headers = await headers_of(house.rig, who)
    own = {VIEWER: "vera", USER: "uwe"}[who]
    status, text = await streamed(house.rig, "/events?after=0", headers)
    assert (status, '"type":"chat.out"' in text) == (200, True)
    read = text
    for conversation in ("web:ute", f"telegram:{CHAT_ID}"):
        path = f"/events?after=0&conversation={conversation}"
        status, _ = await streamed(house.rig, path, headers)
        assert status == 403
    for conversation in ("ute", "local", own):
        _, text = await chatted(house.rig, conversation, headers)
        assert ("welcome" in text) == (conversation == own), text
        read += text
    for secret in (SECRET, HOME, CHAT_ID):
        assert secret not in read


async def test_an_operator_reads_it_all(house: Fixture) -> None:
    """So the walks have looked where the words are."""
    got = await everything(house, OPERATOR)
    assert [name for name in READ_BY_OPERATORS if SECRET not in got[name]] == []
    headers = await headers_of(house.rig, OPERATOR)
    assert SECRET in (await streamed(house.rig, "/events?after=0", headers))[1]
    assert SECRET in (await chatted(house.rig, "ute", headers))[1]


async def test_an_engine_reads_its_own_and_of_others_the_kind_of_error(house: Fixture) -> None:
    """Whoever can talk to one agent must not hear by it what was said to another."""
    rig = house.rig
    rig.tokens.issue_run("agt_ben", "ben", "")
    own = await rig.call(
        "GET", "/interagent/health", token=rig.tokens.issue_run("agt_ben", "ben", "")
    )
    others = await rig.call("GET", "/interagent/health", token=rig.agent_tokens["worker"])
    assert SECRET in own[1]["agents"]["ben"]["last_crash_error"]
    assert others[1]["agents"]["ben"]["last_crash_error"] == "EngineCrash"
    body = {"to": "ben", "message": "x"}
    refused = await rig.call("POST", "/interagent/send", body, token=rig.agent_tokens["worker"])
    assert (refused[0], "is failed: EngineCrash. Revive it" in refused[1]["detail"]) == (409, True)
    assert SECRET in (await rig.call("POST", "/interagent/send", body))[1]["detail"]
