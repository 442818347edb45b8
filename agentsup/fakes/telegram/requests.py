"""A request as the Bot API takes it: query string, form, multipart or JSON; checked by the table.

The real server reads everything as text and converts; so does this one. What it would swallow
without a word (an unknown field, a value of the wrong type) is answered the same way but noted as a
violation, because it is always a bug of the client.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import BodyPartReader, web

from agentsup.fakes.telegram.refusals import bad, refused
from agentsup.fakes.telegram.rules import LIMITS, Field, Method

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Upload:
    """One file of a multipart body."""

    name: str
    mime: str
    data: bytes


@dataclass(slots=True)
class Call:
    """One call of a bot: the method as written, its arguments and files."""

    method: str
    raw: Json
    files: dict[str, Upload] = field(default_factory=dict)
    args: Json = field(default_factory=dict)

    def text(self, name: str) -> str:
        """A text argument, empty if absent."""
        return str(self.args.get(name, ""))

    def number(self, name: str, default: int = 0) -> int:
        """An integer argument."""
        return int(self.args.get(name, default))

    @property
    def chat_id(self) -> str:
        """The chat as given, for limits and faults; empty if absent."""
        return str(self.raw.get("chat_id", ""))


async def read_call(request: web.Request, method: str) -> Call:
    """Everything the request holds; the query string first, the body over it."""
    raw: Json = dict(request.query)
    files: dict[str, Upload] = {}
    kind = request.content_type
    if request.method == "POST" and request.body_exists:
        if kind == "multipart/form-data":
            await _read_multipart(request, raw, files)
        elif kind == "application/json":
            raw.update(_json_body(await request.read()))
        else:
            raw.update({name: str(value) for name, value in (await request.post()).items()})
    return Call(method, raw, files)


def _json_body(body: bytes) -> Json:
    if not body.strip():
        return {}
    try:
        document = json.loads(body)
    except ValueError:
        raise bad("can't parse JSON object") from None
    if not isinstance(document, dict):
        raise bad("expected a JSON object")
    return document


async def _read_multipart(request: web.Request, raw: Json, files: dict[str, Upload]) -> None:
    async for part in await request.multipart():
        if not isinstance(part, BodyPartReader) or part.name is None:
            continue
        data = bytes(await part.read(decode=False))
        if part.filename is None:
            raw[part.name] = data.decode("utf-8", "surrogateescape")
            continue
        if len(data) > LIMITS["upload_bytes"]:
            raise refused("too large")
        mime = part.headers.get("Content-Type", "application/octet-stream")
        files[part.name] = Upload(part.filename, mime, data)


def checked_arguments(method: Method, call: Call) -> tuple[Json, list[str]]:
    """Arguments by the table and remarks for the list of violations. Raises ``Refused``."""
    remarks = [f"unknown field {name!r}" for name in call.raw if method.field(name) is None]
    taken = _attached(call.raw)
    remarks += [
        f"file part {name!r} that nothing refers to"
        for name in call.files
        if method.field(name) is None and name not in taken
    ]
    args: Json = {}
    for rule in method.fields:
        if rule.kind == "file" and rule.name in call.files:
            args[rule.name] = f"attach://{rule.name}"
            continue
        value = call.raw.get(rule.name)
        if value is None or value == "":
            if rule.missing:
                raise bad(rule.missing)
            if value is not None:
                args[rule.name] = value
            continue
        args[rule.name] = _converted(rule, value, remarks)
    return args, remarks


def _attached(raw: Mapping[str, Any]) -> set[str]:
    text = json.dumps(dict(raw), ensure_ascii=True)
    return {piece.split('"')[0].split("\\")[0] for piece in text.split("attach://")[1:]}


def _converted(rule: Field, value: Any, remarks: list[str]) -> Any:
    wrong = f"field {rule.name!r} is no {rule.kind}: {value!r:.80}"
    if rule.kind == "int":
        try:
            return int(value) if not isinstance(value, bool) else _remark(remarks, wrong, 0)
        except (TypeError, ValueError):
            return _remark(remarks, wrong, 0)
    if rule.kind == "bool":
        if isinstance(value, bool):
            return value
        text = str(value).strip().lower()
        if text not in {"true", "yes", "1", "false", "no", "0"}:
            remarks.append(wrong)
        return text in {"true", "yes", "1"}
    if rule.kind in {"list", "dict"}:
        return _structured(rule, value, remarks, wrong)
    if isinstance(value, (dict, list)):
        remarks.append(wrong)
        return json.dumps(value)
    return value if rule.kind == "chat" else str(value)


def _structured(rule: Field, value: Any, remarks: list[str], wrong: str) -> Any:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            if rule.name == "reply_markup":
                raise refused("reply markup json") from None
            raise refused("json", field=rule.name.replace("_", " ")) from None
    if not isinstance(value, list if rule.kind == "list" else dict):
        if rule.name == "reply_markup":
            raise refused("reply markup")
        remarks.append(wrong)
    return value


def _remark(remarks: list[str], text: str, value: Any) -> Any:
    remarks.append(text)
    return value
