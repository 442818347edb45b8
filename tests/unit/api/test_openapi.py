"""The document is valid, complete and made from what checks the requests."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from agentsup.api.http.access import BROWSER, Access
from agentsup.api.http.route import ApiRoute
from agentsup.api.server.listener import ROUTES
from agentsup.api.server.openapi import document

DOCUMENT: dict[str, Any] = json.loads(json.dumps(document(ROUTES, version="0.test")))


def test_a_public_validator_accepts_it() -> None:
    assert list(OpenAPIV31SpecValidator(DOCUMENT).iter_errors()) == []


def test_the_validator_finds_what_is_broken() -> None:
    broken = {**DOCUMENT, "info": {"title": "no version"}}
    assert list(OpenAPIV31SpecValidator(broken).iter_errors())


def test_every_reference_leads_somewhere() -> None:
    known = {f"#/components/schemas/{name}" for name in DOCUMENT["components"]["schemas"]}
    used = set(re.findall(r'"\$ref": "([^"]+)"', json.dumps(DOCUMENT)))
    assert used
    assert used <= known


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_each_route_is_described(route: ApiRoute) -> None:
    operation = DOCUMENT["paths"][route.path][route.method.lower()]
    assert operation["summary"]
    assert set(map(str, route.answers)) <= set(operation["responses"])
    is_guarded = route.access is not Access.OPEN or 401 in route.refusals
    assert ("401" in operation["responses"]) == is_guarded
    assert ("requestBody" in operation) == (route.body is not None or route.takes_bytes)
    if route.method == "POST":
        assert {"413", "415"} <= set(operation["responses"])
    assert ({"session": []} in operation.get("security", ())) == (route.access in BROWSER)
    named = {p["name"] for p in operation["parameters"] if p["in"] == "path"}
    assert all(f"{{{name}}}" in route.path for name in named)
    assert route.path.count("{") == len(named)


def test_no_route_twice_and_operations_have_names_of_their_own() -> None:
    lines = [(route.method, route.path) for route in ROUTES]
    assert len(lines) == len(set(lines))
    names = [o["operationId"] for path in DOCUMENT["paths"].values() for o in path.values()]
    assert len(names) == len(set(names))


def test_what_is_for_programs_is_not_the_pages() -> None:
    own = {r.path for r in ROUTES if r.access is Access.OPERATOR}
    of_openai = {"/v1/chat/completions", "/v1/models", "/v1/models/{name}"}
    assert own >= {"/drain", "/metrics", *of_openai}


def test_the_wire_name_of_from_is_from() -> None:
    properties = DOCUMENT["components"]["schemas"]["SendBody"]["properties"]
    assert "from" in properties
    assert "from_" not in properties
