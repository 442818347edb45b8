"""The OpenAPI document, made from the route table and the models that check the requests."""

from __future__ import annotations

import re
from collections.abc import Sequence
from http import HTTPStatus
from operator import attrgetter
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from agentsup.api.completions.front import OpenAIError
from agentsup.api.documents.document import Document, LegacyProblem, Problem
from agentsup.api.documents.messages import EventDocument
from agentsup.api.http.access import BROWSER, Access
from agentsup.api.http.problems import PROBLEM_TYPE, is_legacy, is_openai
from agentsup.api.http.route import ApiRoute

_REF = "#/components/schemas/{model}"
_DESCRIPTION: Final = (
    "The internal API of an agentsup daemon. Members ending in `_at` are wall time in whole "
    "milliseconds since 1970-01-01 UTC; `uptime` and members ending in `_s` are seconds. Errors "
    "are RFC 9457 problem documents with a stable `code`."
)


def document(routes: Sequence[ApiRoute], *, version: str) -> dict[str, Any]:
    """The whole document for ``routes``."""
    schemas = _schemas(routes)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "agentsup", "version": version, "description": _DESCRIPTION},
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "session": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The secret that a sign-in at /web/login answered.",
                },
            },
        },
    }


def _schemas(routes: Sequence[ApiRoute]) -> dict[str, Any]:
    given = {m for r in routes for m in r.answers.values() if isinstance(m, type)}
    given |= {OpenAIError, EventDocument}
    given |= {Problem, LegacyProblem}
    answers = {m.as_model() if issubclass(m, Document) else m for m in given}
    taken: set[type[BaseModel]] = {r.body for r in routes if r.body is not None}
    by_name = attrgetter("__name__")
    models = [
        *((model, "serialization") for model in sorted(answers, key=by_name)),
        *((model, "validation") for model in sorted(taken, key=by_name)),
    ]
    _, definitions = models_json_schema(
        models,  # type: ignore[arg-type]  # the modes are literals, lost in the list
        ref_template=_REF,
        by_alias=True,
    )
    schemas: dict[str, Any] = definitions["$defs"]
    return schemas


def _operation(route: ApiRoute) -> dict[str, Any]:
    notes = [route.access.who]
    if route.takes_work:
        notes.append("Answers 503 while the daemon drains.")
    operation: dict[str, Any] = {
        "operationId": _operation_id(route),
        "summary": route.summary,
        "description": " ".join(notes),
        "parameters": _parameters(route),
        "responses": _responses(route),
    }
    if route.access is Access.OPEN:
        operation["security"] = []
    if route.access in BROWSER:
        operation["security"] = [{"bearer": []}, {"session": []}]
    if route.takes_bytes:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/octet-stream": {"schema": {}}},
        }
    if route.body is not None:
        operation["requestBody"] = {
            "required": not route.body_optional,
            "content": {"application/json": {"schema": _ref(route.body)}},
        }
    return operation


def _operation_id(route: ApiRoute) -> str:
    words = re.findall(r"\w+", route.path)
    return "_".join((route.method.lower(), *(word.lower() for word in words)))


def _parameters(route: ApiRoute) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"\{(\w+)\}", route.path)
    ]
    query = route.query.model_json_schema(ref_template=_REF)
    nested = query.get("$defs", {})
    for name, schema in query.get("properties", {}).items():
        found.append(
            {
                "name": name,
                "in": "query",
                "required": name in query.get("required", ()),
                "schema": _inlined(schema, nested),
            }
        )
    for name, meaning in route.headers.items():
        found.append(
            {"name": name, "in": "header", "description": meaning, "schema": {"type": "string"}}
        )
    return found


def _inlined(schema: Any, nested: dict[str, Any]) -> Any:
    """``schema`` with its local references replaced, since parameters have no ``$defs``."""
    if isinstance(schema, list):
        return [_inlined(one, nested) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(nested[schema["$ref"].rpartition("/")[2]], nested)
    return {key: _inlined(value, nested) for key, value in schema.items()}


def _responses(route: ApiRoute) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, answer in route.answers.items():
        media, schema = (
            (answer, {}) if isinstance(answer, str) else ("application/json", _ref(answer))
        )
        content = {} if status == 101 else {"content": {media: {"schema": schema}}}
        responses[str(status)] = {"description": HTTPStatus(status).phrase, **content}
    refused = _ref(LegacyProblem if is_legacy(route.path) else Problem)
    media_of_refusals = PROBLEM_TYPE
    if is_openai(route.path):
        refused, media_of_refusals = _ref(OpenAIError), "application/json"
    for status in sorted(_refusals(route) - set(route.answers)):
        responses[str(status)] = {
            "description": HTTPStatus(status).phrase,
            "content": {media_of_refusals: {"schema": refused}},
        }
    return responses


def _refusals(route: ApiRoute) -> set[int]:
    """The statuses with which a route may refuse: those of the common checks, and its own."""
    found = {400, 403, 500, 503} | set(route.refusals)
    if route.access is not Access.OPEN:
        found.add(401)
    if route.method == "POST":
        found |= {413, 415}
    return found


def _ref(model: type[BaseModel | Document]) -> dict[str, str]:
    return {"$ref": _REF.format(model=model.__name__)}
