"""Requests made up from the OpenAPI document: sensible, odd and hostile ones, by a seed.

    fuzz = ApiFuzz(document, seed, pool)
    request = fuzz.next()      # method, path, query, headers and body

``pool`` are values that mean something in the home at hand: names, ids, tokens. Fields with a fitting
name get one of them most of the time, so that requests come further than to "there is no such".
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

_TEXTS: Final = (
    *("", " ", "a", "main", "null", "0", "-1", "../../x", "%00", "\x00", "\u202e", "é" * 300),
    *("a" * 5000, "'; DROP TABLE messages; --", '{"a":1}', "\ud83d\ude00", "chat:console:local"),
)
_NUMBERS: Final = (0, 1, -1, 2, 500, 501, 2**31, 2**63 - 1, 2**63, -(2**63) - 1, 10**30)
_FLOATS: Final = (0.0, 0.001, -0.5, 1.5, 1e308, 3600.0)
_ODD: Final[tuple[Any, ...]] = (
    None,
    True,
    0,
    -1,
    1.5,
    "",
    "x",
    [],
    {},
    [None],
    {"a": None},
    [[]] * 3,
    "a" * 3000,
)
_DEPTH: Final = 4


@dataclass(frozen=True, slots=True)
class Request:
    """One request; ``body`` is None where there is none."""

    operation: str
    """``METHOD /path/{name}`` of the document."""
    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None


class ApiFuzz:
    """Makes up one request after the other."""

    def __init__(
        self,
        document: Mapping[str, Any],
        seed: int,
        pool: Mapping[str, Sequence[str]],
        *,
        without: frozenset[str] = frozenset(),
    ) -> None:
        """``without`` are operations that are left out."""
        self._schemas = document["components"]["schemas"]
        self._pool = {name: list(values) for name, values in pool.items() if values}
        self._any = sorted({value for values in self._pool.values() for value in values})
        self._random = random.Random(seed)
        self._operations = [
            (f"{method.upper()} {path}", path, method.upper(), operation)
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
            if f"{method.upper()} {path}" not in without
        ]

    def next(self) -> Request:
        """The next request."""
        name, path, method, operation = self._random.choice(self._operations)
        query, headers = [], {}
        for parameter in operation.get("parameters", ()):
            key, schema = parameter["name"], parameter["schema"]
            if parameter["in"] == "path":
                path = path.replace(
                    f"{{{key}}}", quote(self._text_of(key), safe="", errors="replace") or "%20"
                )
            elif self._random.random() < 0.5:
                value = self._plain(self._value(key, schema))
                if parameter["in"] == "query":
                    query.append(f"{quote(key)}={quote(value, errors='replace')}")
                elif value.isprintable() and value.isascii():
                    headers[key] = value
        body = None
        content = operation.get("requestBody", {}).get("content", {})
        if "application/json" in content and self._random.random() < 0.95:
            headers["Content-Type"] = "application/json"
            body = self._body(content["application/json"]["schema"])
        elif content:
            headers["Content-Type"] = "application/octet-stream"
            body = self._random.randbytes(50)
        url = f"{path}?{'&'.join(query)}" if query else path
        return Request(name, method, url, headers, body)

    # -- inside ------------------------------------------------------------------------------------

    def _body(self, schema: Mapping[str, Any]) -> bytes:
        if self._random.random() < 0.03:
            return self._random.choice((b"", b"{", b"null", b"[]", b'"x"', b"\xff", b"[" * 3000))
        value = self._value("", schema)
        if isinstance(value, dict) and value and self._random.random() < 0.4:
            key = self._random.choice(sorted(value))
            match self._random.randrange(4):
                case 0:
                    value[key] = None
                case 1:
                    value[key] = self._odd()
                case 2:
                    del value[key]
                case _:
                    value["unknown"] = self._odd()
        return json.dumps(value).encode()

    def _value(self, name: str, schema: Mapping[str, Any], depth: int = 0) -> Any:
        schema = self._resolved(schema)
        if self._random.random() < 0.03:
            return self._odd()
        if "anyOf" in schema or "oneOf" in schema:
            each = self._random.choice(schema.get("anyOf") or schema["oneOf"])
            return self._value(name, each, depth)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self._random.choice(schema["enum"])
        match schema.get("type"):
            case "object":
                return self._object(schema, depth)
            case "array":
                count = 0 if depth > _DEPTH else self._random.randrange(3)
                return [self._value(name, schema.get("items", {}), depth + 1) for _ in range(count)]
            case "integer":
                return self._number(schema)
            case "number":
                return self._random.choice((*_FLOATS, self._number(schema)))
            case "boolean":
                return self._random.random() < 0.5
            case "null":
                return None
            case "string":
                return self._text_of(name)
        return self._odd()

    def _odd(self) -> Any:
        """One of the odd values, of its own: whoever gets it may change it."""
        return deepcopy(self._random.choice(_ODD))

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        required = schema.get("required", ())
        return {
            key: self._value(key, each, depth + 1)
            for key, each in schema.get("properties", {}).items()
            if key in required or (depth <= _DEPTH and self._random.random() < 0.4)
        }

    def _number(self, schema: Mapping[str, Any]) -> int:
        if self._random.random() < 0.6:
            least = int(schema.get("minimum", schema.get("exclusiveMinimum", 0)))
            return self._random.randint(least, max(least, min(5, int(schema.get("maximum", 5)))))
        return self._random.choice(_NUMBERS)

    def _text_of(self, name: str) -> str:
        known = self._pool.get(name)
        if known and self._random.random() < 0.7:
            return self._random.choice(known)
        if self._any and self._random.random() < 0.4:
            return self._random.choice(self._any)
        return self._random.choice(_TEXTS)

    def _plain(self, value: Any) -> str:
        return value if isinstance(value, str) else json.dumps(value)

    def _resolved(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        while "$ref" in schema:
            schema = self._schemas[schema["$ref"].rpartition("/")[2]]
        return schema
