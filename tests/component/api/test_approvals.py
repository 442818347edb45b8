"""Leave over HTTP: given with other arguments, listed, taken back; by the operator alone."""

from __future__ import annotations

import json

import pytest

from agentsup.approvals.gate import Gate
from agentsup.kit.clock import SystemClock
from agentsup.model.engine import Suspended
from agentsup.model.question import APPROVAL, Who
from agentsup.model.tool import Tool, ToolContext
from tests.component.api.conftest import Rig


async def _run(context: ToolContext, args: dict[str, object]) -> str:
    raise AssertionError("nothing is called here")


SHAPE = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


@pytest.fixture
async def asked(rig: Rig) -> str:
    """A question about a call of `append`."""
    tool = Tool("append", "", SHAPE, _run)
    Gate(rig.database, SystemClock(), rig.mailbox, tool_of={"append": tool}.get)
    await rig.call("POST", "/interagent/send_async", {"to": "Scout", "message": "go"})
    lease = await rig.lease("Scout")
    ask = Suspended(
        b"",
        "May I?",
        ("once", "run", "always", "deny"),
        kind=APPROVAL,
        who=Who.OPERATORS,
        call_id=f"{lease.message.message_id}:k:1",
        tool="append",
    )
    question = await rig.database.write(lambda tx: rig.mailbox.park_tx(tx, lease, ask))
    return question.question_id


async def test_leave_is_given_listed_and_taken_back(rig: Rig, asked: str) -> None:
    path = f"/questions/{asked}/answer"
    for args in ({}, {"text": 1}):
        status, document, _ = await rig.call("POST", path, {"answer": "always", "args": args})
        assert (status, document["code"]) == (400, "bad_request"), document
    body = {"answer": "always", "args": {"text": "y"}}
    status, document, _ = await rig.call("POST", path, body)
    assert (status, document["answer"], document["tool"]) == (200, "always", "append")
    kept = await rig.database.read(lambda r: r.scalar("SELECT args FROM questions"))
    assert json.loads(kept) == {"text": "y"}
    _, document, _ = await rig.call("GET", "/approvals?agent=scout")
    (grant,) = document["approvals"]
    assert (grant["agent"], grant["tool"], grant["scope"]) == ("Scout", "append", "always")
    _, document, _ = await rig.call("GET", "/approvals?agent=worker")
    assert document["approvals"] == []
    assert (await rig.call("POST", "/approvals/revoke", {"id": "grant-x"}))[0] == 404
    assert (await rig.call("POST", "/approvals/revoke", {"id": grant["id"]}))[0] == 200
    assert (await rig.call("POST", "/approvals/revoke", {"id": grant["id"]}))[0] == 409
    _, document, _ = await rig.call("GET", "/approvals")
    assert document["approvals"] == []


async def test_an_agent_neither_gives_nor_sees_leave(rig: Rig, asked: str) -> None:
    token = rig.agent_tokens["worker"]
    answer = {"answer": "once"}
    for method, path, body in (
        ("POST", f"/questions/{asked}/answer", answer),
        ("GET", "/approvals", None),
        ("POST", "/approvals/revoke", {"id": "grant-x"}),
    ):
        status, _, _ = await rig.call(method, path, body, token=token)
        assert status == 403, path
