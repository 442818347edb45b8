"""Errors as RFC 9457 problem documents, with the members that older clients read; a page of HTML for a
browser that came under a name which is not ours."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from html import escape
from http import HTTPStatus
from typing import Any, Final

from aiohttp import hdrs, web
from pydantic import ValidationError

from agentsup.api.documents.document import Document
from agentsup.catalogue import words
from agentsup.kit.own_command import with_home
from agentsup.model.errors import (
    AgentDown,
    AgentsupError,
    BadRequest,
    EngineFailed,
    Forbidden,
    Gone,
    NotReady,
    Overloaded,
    StoreUnavailable,
    TimedOut,
)

PROBLEM_TYPE = "application/problem+json"
LEGACY_PREFIXES = ("/interagent", "/tasks", "/agents", "/stop_all")
"""Routes whose failures also carry ``success: false`` and ``error``."""

_RESERVED = frozenset({"type", "title", "status", "detail", "instance", "code", "request_id"})
_DEFAULT_RETRY_S = {NotReady: 5, StoreUnavailable: 5, Overloaded: 1}


def is_legacy(path: str) -> bool:
    """Whether failures under ``path`` carry ``success`` and ``error`` too."""
    return path.startswith(LEGACY_PREFIXES)


def problem(error: AgentsupError, *, path: str, request_id: str) -> dict[str, Any]:
    """The problem document of ``error`` for a request to ``path``."""
    facts = {k: v for k, v in error.facts.items() if k not in _RESERVED and v is not None}
    # Who has not got in yet is not told where the home is.
    detail = str(error) if error.status in (401, 403) else with_home(str(error))
    document: dict[str, Any] = {
        "type": f"urn:agentsup:problem:{error.code}",
        "title": HTTPStatus(error.status).phrase,
        "status": error.status,
        "detail": detail,
        "code": error.code,
        "request_id": request_id,
        **facts,
    }
    if is_legacy(path):
        document["success"] = False
        document["error"] = detail
        if isinstance(error, (EngineFailed, TimedOut)):
            document.setdefault("text", detail)
    return document


def is_openai(path: str) -> bool:
    """Whether failures under ``path`` have the shape that clients of the OpenAI API read."""
    return path.startswith("/v1/")


_OPENAI_STATUS: Mapping[type[AgentsupError], int] = {AgentDown: 503, Gone: 404}
_OPENAI_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


def openai_status(error: AgentsupError) -> int:
    """The status that those clients understand: 503 for an agent that is down, 404 for a removed
    one."""
    return _OPENAI_STATUS.get(type(error), error.status)


def openai_error(error: AgentsupError) -> dict[str, Any]:
    """The document of ``error`` in the shape of the OpenAI API."""
    status = openai_status(error)
    kind = _OPENAI_TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    code = error.code
    if status == 404 and error.facts.get("agent"):
        code = "model_not_found"
    elif status == 401:
        code = "invalid_api_key"
    param = error.facts.get("field")
    return {"error": {"message": str(error), "type": kind, "param": param, "code": code}}


def retry_after_s(error: AgentsupError) -> int | None:
    """Whole seconds for ``Retry-After``, or None where trying again does not help."""
    for kind, default_s in _DEFAULT_RETRY_S.items():
        if isinstance(error, kind):
            given = error.facts.get("retry_after_s", default_s)
            return max(1, math.ceil(given)) if isinstance(given, (int, float)) else default_s
    return None


def encode(document: Mapping[str, Any] | Document) -> bytes:
    """JSON bytes; a value that JSON has no type for is written as its ``str``."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), default=_plain)
    return text.encode("utf-8", "replace")


def _plain(value: object) -> object:
    return value.members() if isinstance(value, Document) else str(value)


def bad_body(error: ValidationError, *, where: str = "body") -> BadRequest:
    """A pydantic refusal as one sentence that names the field first found wrong."""
    findings = [_finding(e["loc"], e["type"], e["msg"]) for e in error.errors(include_url=False)]
    field, message = findings[0]
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    detail = f"field '{field}': {message}{more}" if field else f"the {where} {message}"
    return BadRequest(
        detail,
        field=field or where,
        errors=[{"field": f or where, "message": m} for f, m in findings],
    )


def _finding(loc: tuple[int | str, ...], kind: str, message: str) -> tuple[str, str]:
    field = ".".join(str(part) for part in loc[:1])
    if kind == "json_invalid":
        return "", "is not valid JSON: " + message.removeprefix("Invalid JSON: ")
    if kind == "missing":
        return field, "is required"
    if kind == "extra_forbidden":
        return field, "is not known here; remove it or check its spelling"
    if kind in ("model_type", "model_attributes_type", "dict_type") and not field:
        return "", "must be a JSON object"
    text = message.removeprefix("Value error, ")
    if kind == "too_long" and text.startswith("Value should"):  # a text that was checked before
        text = text.replace("items after validation", "characters")
    return field, text[:1].lower() + text[1:]


_NAME: Final = re.compile(
    r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?|\[[0-9a-f:.]{2,45}\]", re.IGNORECASE
)
_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_PAGE: Final = """<!doctype html>
<html lang="{language}"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta name="robots" content="noindex"><title>agentsup: {title}</title>
<style>body{{font:1rem/1.5 system-ui,sans-serif;max-width:38rem;margin:2rem auto;padding:0 1rem;
color-scheme:light dark;overflow-wrap:anywhere}}pre{{border:1px solid;padding:.6rem;
white-space:pre-wrap}}</style>
<h1>{title}</h1><p>{what}</p><p>{how}</p><pre>{setting}</pre><p>{then}</p><p>{care}</p></html>
"""


class NotOurHost(Forbidden):
    """The request names a host that is not listed."""


def is_for_people(request: web.Request) -> bool:
    """Whether a browser asks for a page to show. Programs and scripts get a problem document."""
    return request.method in (hdrs.METH_GET, hdrs.METH_HEAD) and "text/html" in request.headers.get(
        hdrs.ACCEPT, ""
    )


def elsewhere(request: web.Request) -> web.Response:
    """Say that the page is not served under this name, and which setting changes that."""
    hosts = request.headers.getall(hdrs.HOST, ())
    name = _name_of(hosts[0]) if len(hosts) == 1 else ""
    said = request.headers.get(hdrs.ACCEPT_LANGUAGE, "").partition(",")[0].partition(";")[0]
    say = words(said.strip()[:20])
    shown = name or "agents.home.example"
    text = _PAGE.format(
        language=say("elsewhere.language"),
        title=escape(say("elsewhere.title")),
        what=escape(say("elsewhere.what", name=name) if name else say("elsewhere.unnamed")),
        how=escape(say("elsewhere.how")),
        setting=escape(f'[api]\nallowed_hosts = ["{shown}"]'),
        then=escape(say("elsewhere.then")),
        care=escape(say("elsewhere.care")),
    )
    return web.Response(
        text=text,
        status=403,
        content_type="text/html",
        charset="utf-8",
        headers={"Content-Security-Policy": _POLICY},
    )


def _name_of(host: str) -> str:
    """The name in a ``Host`` header without its port; empty if it is no plain one."""
    name = re.sub(r":[0-9]{1,5}\Z", "", host)
    return name if _NAME.fullmatch(name) else ""
