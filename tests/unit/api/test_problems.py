"""Errors as problem documents."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from agentsup.api.documents.bodies import SendBody
from agentsup.api.http.problems import bad_body, encode, is_legacy, problem, retry_after_s
from agentsup.model import errors


def all_errors() -> list[type[errors.AgentsupError]]:
    """Every kind that is made from its sentence alone; the others make theirs from facts."""
    found, waiting = [], [errors.AgentsupError]
    while waiting:
        kind = waiting.pop()
        found.append(kind)
        waiting += kind.__subclasses__()
    return [kind for kind in found if kind.__init__ is errors.AgentsupError.__init__]


@pytest.mark.parametrize("kind", all_errors(), ids=lambda kind: kind.__name__)
def test_each_error_has_its_status_code_and_sentence(kind: type[errors.AgentsupError]) -> None:
    document = problem(kind("what happened"), path="/status", request_id="req_1")
    assert document["status"] == kind.status
    assert document["code"] == kind.code
    assert document["type"] == f"urn:agentsup:problem:{kind.code}"
    assert document["detail"] == "what happened"
    assert document["title"]
    assert "success" not in document


def test_facts_are_members_and_never_replace_ours() -> None:
    error = errors.Conflict("no", status="parked", detail="x", code="y", state="parked", none=None)
    document = problem(error, path="/messages/m", request_id="req_1")
    assert (document["status"], document["detail"], document["code"]) == (409, "no", "conflict")
    assert document["state"] == "parked"
    assert "none" not in document


@pytest.mark.parametrize(
    "path, legacy",
    [
        ("/interagent/send", True),
        ("/tasks/create", True),
        ("/agents", True),
        ("/agents/a/stop", True),
        ("/stop_all", True),
        ("/messages", False),
        ("/events", False),
    ],
)
def test_older_clients_find_success_and_error(path: str, legacy: bool) -> None:
    assert is_legacy(path) is legacy
    document = problem(errors.TimedOut("too slow", message_id="m"), path=path, request_id="r")
    assert (document.get("success"), document.get("error")) == (
        (False, "too slow") if legacy else (None, None)
    )
    assert document.get("text") == ("too slow" if legacy else None)


def test_what_a_failed_engine_had_said_stays() -> None:
    error = errors.EngineFailed("broke", text="half an answer")
    assert problem(error, path="/interagent/send", request_id="r")["text"] == "half an answer"


def test_retry_after() -> None:
    assert retry_after_s(errors.NotReady("x", retry_after_s=2.1)) == 3
    assert retry_after_s(errors.Overloaded("x")) == 1
    assert retry_after_s(errors.StoreUnavailable("x")) == 5
    assert retry_after_s(errors.Conflict("x")) is None
    assert retry_after_s(errors.NotReady("x", retry_after_s="soon")) == 5


def test_encoding_never_fails() -> None:
    raw = encode({"a": "\ud800", "b": object(), "c": "ж"})
    assert "ж" in raw.decode()
    assert set(json.loads(raw)) == {"a", "b", "c"}


def test_the_sentence_of_a_bad_body_names_the_first_field_and_counts_the_rest() -> None:
    with pytest.raises(ValidationError) as caught:
        SendBody.model_validate_json('{"to": 5, "timeout": "x"}')
    error = bad_body(caught.value)
    assert error.facts["field"] == "to"
    assert str(error) == "field 'to': input should be a valid string (and 2 more)"
    assert [e["field"] for e in error.facts["errors"]] == ["to", "message", "timeout"]
