"""Reading JSON of unknown shape, field by field. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

__all__ = [
    "Json",
    "Malformed",
    "int_or_none",
    "integer",
    "is_int",
    "list_of",
    "milliseconds",
    "object_of",
    "text_of",
]

Json = Mapping[str, Any]


class Malformed(ValueError):
    """The update lacks what an update of its kind must have; says what."""


def is_int(value: object) -> TypeGuard[int]:
    """Whether it is a number; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def int_or_none(value: object) -> int | None:
    """The number, or None for anything else."""
    return value if is_int(value) else None


def integer(body: Json, name: str) -> int:
    """A number that must be there. Raises ``Malformed``."""
    value = int_or_none(body.get(name))
    if value is None:
        raise Malformed(f"{name} is missing or no number")
    return value


def milliseconds(body: Json, name: str) -> int:
    """A time in seconds that must be there, in ms. Raises ``Malformed``."""
    return integer(body, name) * 1000


def text_of(body: Json, name: str) -> str:
    """A text, empty if it is not there. Raises ``Malformed`` for anything else."""
    value = body.get(name, "")
    if not isinstance(value, str):
        raise Malformed(f"{name} is no text")
    return value


def list_of(body: Json, name: str) -> list[Any]:
    """A list, empty if it is not there. Raises ``Malformed`` for anything else."""
    value = body.get(name, [])
    if not isinstance(value, list):
        raise Malformed(f"{name} is no list")
    return value


def object_of(body: Json, name: str) -> Json:
    """An object that must be there. Raises ``Malformed``."""
    value = body.get(name)
    if not isinstance(value, Mapping):
        raise Malformed(f"{name} is missing or no object")
    return value
