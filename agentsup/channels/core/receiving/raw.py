"""Reading JSON of unknown shape, field by field. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeGuard

Json = Mapping[str, Any]


class Malformed(ValueError):
    """The update lacks a field that its kind must have; the message names it."""


def is_int(value: object) -> TypeGuard[int]:
    """Whether it is an integer; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def int_or_none(value: object) -> int | None:
    """Return the integer, or None for anything else."""
    return value if is_int(value) else None


def integer(body: Json, name: str) -> int:
    """Return a required integer. Raises ``Malformed``."""
    value = int_or_none(body.get(name))
    if value is None:
        raise Malformed(f"{name} is missing or no number")
    return value


def milliseconds(body: Json, name: str) -> int:
    """Return a required time, given in seconds, in ms. Raises ``Malformed``."""
    return integer(body, name) * 1000


def text_of(body: Json, name: str) -> str:
    """Return a text, empty if it is missing. Raises ``Malformed`` for anything else."""
    value = body.get(name, "")
    if not isinstance(value, str):
        raise Malformed(f"{name} is no text")
    return value


def list_of(body: Json, name: str) -> list[Any]:
    """Return a list, empty if it is missing. Raises ``Malformed`` for anything else."""
    value = body.get(name, [])
    if not isinstance(value, list):
        raise Malformed(f"{name} is no list")
    return value


def object_of(body: Json, name: str) -> Json:
    """Return a required object. Raises ``Malformed``."""
    if not isinstance(body.get(name), Mapping):
        raise Malformed(f"{name} is missing or no object")
    return maybe_of(body, name)


def object_in(text: bytes) -> dict[str, Any]:
    """Return the object that ``text`` holds as JSON, empty if it is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def maybe_of(body: Json, name: str) -> Json:
    """Return an object, empty if there is none."""
    value = body.get(name)
    return value if isinstance(value, Mapping) else {}


def maybe_text(body: object, name: str) -> str:
    """Return a text, empty if there is none, or if ``body`` is no object."""
    value = body.get(name) if isinstance(body, Mapping) else None
    return value if isinstance(value, str) else ""


def maybe_list(body: Json, name: str) -> list[Any]:
    """Return a list, empty if there is none."""
    value = body.get(name)
    return value if isinstance(value, list) else []
