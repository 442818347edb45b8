"""What is answered is what the OpenAPI document says."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from agentsup.model.engine import Suspended
from tests.component.api.conftest import ApiFixture

CASES = [
    ("GET", "/healthz", None),
    ("GET", "/readyz", None),
    ("GET", "/status", None),
    ("POST", "/drain", None),
    ("POST", "/interagent/send_async", {"to": "worker", "message": "x"}),
    ("POST", "/interagent/send_async", {"to": "worker"}),
    ("POST", "/interagent/send", {"to": "ghost", "message": "x"}),
    ("POST", "/interagent/send", {"to": "worker", "message": "x", "timeout": 0.01}),
    ("GET", "/interagent/results/{id}", None),
    ("GET", "/interagent/agents", None),
    ("GET", "/interagent/health", None),
    ("GET", "/agents", None),
    ("GET", "/agents/main", None),
    ("GET", "/agents/ghost", None),
    ("GET", "/agents/main/explain", None),
    ("GET", "/agents/main/overrides", None),
    ("POST", "/agents/main/overrides", {"field": "model", "value": "small"}),
    ("POST", "/agents/main/overrides", {"field": "modle", "value": "small"}),
    ("GET", "/agents/main/chat_models", None),
    ("POST", "/agents/main/chat_models", {"chat": "telegram:1", "model": None}),
    ("POST", "/agents/main/chat_models", {"chat": "telegram:1", "model": "small"}),
    ("POST", "/agents/main/restart", None),
    ("POST", "/stop_all", None),
    ("GET", "/messages", None),
    ("GET", "/messages/{id}", None),
    ("GET", "/threads/{id}", None),
    ("POST", "/messages/{id}/reprioritize", {"priority": "low"}),
    ("POST", "/messages/{id}/cancel", None),
    ("GET", "/dead", None),
    ("POST", "/dead/{id}/requeue", None),
    ("GET", "/mail?agent=main", None),
    ("GET", "/cost", None),
    ("GET", "/cost?agent=main", None),
    ("GET", "/roles", None),
    ("POST", "/route", {"text": "write a text"}),
    ("GET", "/hooks", None),
    ("GET", "/agents/main/mcp", None),
    ("GET", "/agents/main/memory", None),
    ("GET", "/approvals", None),
    ("GET", "/traces", None),
    ("GET", "/traces/metrics", None),
    ("GET", "/poison", None),
    ("GET", "/poison/telegram.1", None),
    ("POST", "/poison/telegram.1/retry", None),
    ("POST", "/poison/telegram.1/drop", None),
    ("GET", "/questions", None),
    ("POST", "/questions/{question}/answer", {"answer": "yes"}),
    ("POST", "/tasks/create", {"prompt": "x"}),
    ("POST", "/tasks/create", {"prompt": "x", "thinking": "much"}),
    ("POST", "/tasks/resume", {"task_id": "{task}", "prompt": "x"}),
    ("POST", "/tasks/resume", {"task_id": "task_nothing", "prompt": "x"}),
    ("POST", "/tasks/ask_parent", {"task_id": "{working}", "question": "Really?"}),
    ("POST", "/tasks/answer", {"task_id": "{asking}", "answer": "yes"}),
    ("POST", "/tasks/answer", {"task_id": "{working}", "answer": "yes"}),
    ("POST", "/tasks/cancel", {"task_id": "{working}"}),
    ("POST", "/tasks/delete", {"task_id": "{task}"}),
    ("POST", "/tasks/delete", {"task_id": "{working}"}),
    ("POST", "/tasks/update", {"task_id": "{working}", "percent": 7}),
    ("GET", "/tasks/list", None),
    ("GET", "/tasks/list?limit=1", None),
    ("GET", "/tasks/list?state=odd", None),
    ("GET", "/tasks/{task}", None),
    ("GET", "/tasks/{asking}", None),
    ("GET", "/tasks/{id}", None),
    ("GET", "/tasks/{asking}/log", None),
    ("GET", "/web/session", None),
    ("GET", "/web/people", None),
    ("POST", "/web/links", {"person": "uwe"}),
    ("POST", "/web/links", {"person": "nobody"}),
    ("POST", "/web/logout", None),
    ("POST", "/web/logout_everywhere", None),
    ("GET", "/web/history?agent=main&conversation=local", None),
    ("GET", "/web/sessions?agent=main&conversation=local", None),
    ("POST", "/web/sessions", {"agent": "main", "conversation": "local"}),
    ("POST", "/web/sessions/switch", {"agent": "main", "conversation": "local", "session": "s"}),
    ("GET", "/web/figures", None),
    ("GET", "/agents/main/log", None),
    ("GET", "/v1/models", None),
    ("GET", "/v1/models/main", None),
    ("GET", "/v1/models/ghost", None),
    ("POST", "/v1/chat/completions", {"model": "ghost"}),
]


def schema_of(document: dict[str, Any], method: str, path: str, status: int) -> dict[str, Any]:
    """The schema of one answer, found by matching the path against its template."""
    wanted = path.partition("?")[0].split("/")
    # A name in full comes before a parameter that would fit it too.
    for template, operations in sorted(
        document["paths"].items(), key=lambda pair: pair[0].count("{")
    ):
        parts = template.split("/")
        fits = len(parts) == len(wanted) and all(
            own == part or own.startswith("{") for own, part in zip(parts, wanted, strict=True)
        )
        if fits and method.lower() in operations:
            response = operations[method.lower()]["responses"][str(status)]
            (content,) = response["content"].values()
            return {**content["schema"], "components": document["components"]}
    raise AssertionError(f"{method} {path} is not described")


_DOCUMENT: dict[str, Any] = {}
"""It depends on no rig, and building it costs more than what is asked with it."""


async def document_of(rig: ApiFixture) -> dict[str, Any]:
    if not _DOCUMENT:
        _, found, _ = await rig.call("GET", "/openapi.json", token=rig.agent_tokens["main"])
        _DOCUMENT.update(found)
    return _DOCUMENT


async def tasks_of(rig: ApiFixture) -> dict[str, str]:
    """A task that is only written down, one at work, and one that asks and has a schedule."""
    ids = {}
    for name, more in (
        ("task", {"start": False}),
        ("working", {"agent": "worker"}),
        ("asking", {"agent": "Scout", "name": "odd", "max_usd": 1.5, "timeout": 60}),
    ):
        _, made, _ = await rig.call("POST", "/tasks/create", {"prompt": "x", **more})
        ids[name] = made["task_id"]
        if name != "task":
            await rig.lease(str(more["agent"]))
    body = {"task_id": ids["asking"], "question": "Really?", "options": ["yes", "no"]}
    await rig.call("POST", "/tasks/ask_parent", body)
    return ids


@pytest.mark.parametrize("method, path, body", CASES)
async def test_answers_have_the_shape_described(
    rig: ApiFixture, method: str, path: str, body: dict[str, Any] | None
) -> None:
    document = await document_of(rig)
    _, sent, _ = await rig.call("POST", "/interagent/send_async", {"to": "main", "message": "hi"})
    _, asks, _ = await rig.call("POST", "/interagent/send_async", {"to": "Scout", "message": "?"})
    lease = await rig.lease("Scout")
    question = await rig.database.write(
        lambda tx: rig.mailbox.questions.park_tx(tx, lease, Suspended(b"", "Really?"))
    )
    ids = {"id": sent["task_id"], "question": question.question_id}
    if "/tasks/" in path:
        ids |= await tasks_of(rig)
    path = path.format(**ids)
    if body is not None and "task_id" in body:
        body = {**body, "task_id": body["task_id"].format(**ids)}
    status, answer, _ = await rig.call(method, path, body)
    schema = schema_of(document, method, path, status)
    assert schema.get("$ref"), "an undescribed answer would pass whatever it says"
    errors = list(Draft202012Validator(schema).iter_errors(answer))
    assert errors == [], answer
    assert asks["success"] is True
