"""The OpenAPI document, made from the route table and the models that check the requests."""

from __future__ import annotations

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from agentsup.api import shapes
from agentsup.api.access import BROWSER, Access
from agentsup.api.completions.shapes import OpenAIError
from agentsup.api.problems import PROBLEM_TYPE, is_legacy, is_openai
from agentsup.api.route import Route

_REF = "#/components/schemas/{model}"
_DESCRIPTION: Final = (
    "The internal API of an agentsup daemon. Members ending in `_at` are wall time in whole "
    "milliseconds since 1970-01-01 UTC; `uptime` and members ending in `_s` are seconds. Errors "
    "are RFC 9457 problem documents with a stable `code`."
)
_WHO: Final = {
    Access.OPEN: "Needs no token.",
    Access.ANY: "Any living token.",
    Access.RUN: "The token of a running turn only.",
    Access.OPERATOR: "The operator's token only.",
    Access.LOOK: "The operator's token, or anybody signed in to the page.",
    Access.TALK: "The operator's token, or a signed-in person of the role user or more.",
    Access.STEER: "The operator's token, or a signed-in operator.",
}


def document(routes: Sequence[Route], *, version: str, cookie: str = "agentsup") -> dict[str, Any]:
    """The whole document for `routes`; `cookie` is the name of the page's session cookie."""
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
                "session": {"type": "apiKey", "in": "cookie", "name": cookie},
            },
        },
    }


def _schemas(routes: Sequence[Route]) -> dict[str, Any]:
    answers = {m for r in routes for m in r.answers.values() if isinstance(m, type)}
    answers |= {
        shapes.Problem,
        shapes.LegacyProblem,
        OpenAIError,
        shapes.EventDocument,
    }
    taken: set[type[BaseModel]] = {r.body for r in routes if r.body is not None}
    models = [
        *((model, "serialization") for model in sorted(answers, key=_name)),
        *((model, "validation") for model in sorted(taken, key=_name)),
    ]
    _, definitions = models_json_schema(
        models,  # type: ignore[arg-type]  # the modes are literals, lost in the list
        ref_template=_REF,
        by_alias=True,
    )
    schemas: dict[str, Any] = definitions["$defs"]
    return schemas


def _name(model: type[BaseModel]) -> str:
    return model.__name__


def _operation(route: Route) -> dict[str, Any]:
    notes = [_WHO[route.access]]
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


def _operation_id(route: Route) -> str:
    words = re.findall(r"\w+", route.path)
    return "_".join((route.method.lower(), *(word.lower() for word in words)))


def _parameters(route: Route) -> list[dict[str, Any]]:
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
    """`schema` with its local references replaced, since parameters have no `$defs`."""
    if isinstance(schema, list):
        return [_inlined(one, nested) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(nested[schema["$ref"].rpartition("/")[2]], nested)
    return {key: _inlined(value, nested) for key, value in schema.items()}


def _responses(route: Route) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, answer in route.answers.items():
        media, schema = (
            (answer, {}) if isinstance(answer, str) else ("application/json", _ref(answer))
        )
        content = {} if status == 101 else {"content": {media: {"schema": schema}}}
        responses[str(status)] = {"description": HTTPStatus(status).phrase, **content}
    refused = _ref(shapes.LegacyProblem if is_legacy(route.path) else shapes.Problem)
    media_of_refusals = PROBLEM_TYPE
    if is_openai(route.path):
        refused, media_of_refusals = _ref(OpenAIError), "application/json"
    for status in sorted(_refusals(route) - set(route.answers)):
        responses[str(status)] = {
            "description": HTTPStatus(status).phrase,
            "content": {media_of_refusals: {"schema": refused}},
        }
    return responses


def _refusals(route: Route) -> set[int]:
    """What any route may refuse with, by what is checked of it, and its own."""
    found = {400, 403, 500, 503} | set(route.refusals)
    if route.access is not Access.OPEN:
        found.add(401)
    if route.method == "POST":
        found |= {413, 415}
    return found


def _ref(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": _REF.format(model=model.__name__)}
