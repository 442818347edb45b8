"""Declarations of an agent's fields: the class of a change, the meaning, and the values.

A field's type says what a spec holds. A mark of ``Annotated`` says more about its values in a file: a
``Range``, a ``Literal`` of all of them, or the name of their kind, whose rule is in ``config.entry``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, TypeVar

T = TypeVar("T")


class FieldClass(StrEnum):
    """The class of a changed field: how it takes effect."""

    LIVE = "live"
    """At once, or from the next turn on; nothing is interrupted."""
    CHANNEL = "channel"
    """The agent's channel is connected again; the agent and its work go on."""
    REBUILD = "rebuild"
    """The agent is drained and rebuilt; other agents are not affected."""
    PROCESS = "process"
    """The daemon must be restarted."""


@dataclass(frozen=True, slots=True)
class FieldInfo:
    """One row of the field table."""

    cls: FieldClass
    doc: str
    overridable: bool = False
    """Whether an operator may override it from chat, CLI or API."""
    identity: bool = False
    """Whether it belongs to one agent alone, and is refused in ``[agent_defaults]``."""
    secret: bool = False


_INFO, _BLOCK = "info", "block"


def about(cls: FieldClass, doc: str, **marks: bool) -> Mapping[str, FieldInfo]:
    """The metadata of a field; ``marks`` are the other fields of ``FieldInfo``."""
    return {_INFO: FieldInfo(cls, doc, **marks)}


def live(default: T, doc: str, **marks: bool) -> T:
    """Declare a field that takes effect at once; see ``about``."""
    return _declared(default, about(FieldClass.LIVE, doc, **marks))


def channel(default: T, doc: str, **marks: bool) -> T:
    """Declare a field whose change connects the agent's channel again; see ``about``."""
    return _declared(default, about(FieldClass.CHANNEL, doc, **marks))


def rebuild(default: T, doc: str, **marks: bool) -> T:
    """Declare a field whose change rebuilds the agent; see ``about``."""
    return _declared(default, about(FieldClass.REBUILD, doc, **marks))


def _declared(default: T, metadata: Mapping[str, FieldInfo]) -> T:
    if default == {}:
        return field(default_factory=type(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def block(kind: type[T]) -> T:
    """Declare a block of fields: merged key by key, compared key by key."""
    return field(default_factory=kind, metadata={_BLOCK: kind})


def blocks_of(spec: Any) -> dict[str, type]:
    """The blocks of a spec's class, by the names of their fields."""
    return {each.name: each.metadata[_BLOCK] for each in fields(spec) if _BLOCK in each.metadata}


def rows_of(spec: Any, prefix: str = "") -> dict[str, FieldInfo]:
    """The field table of a spec's class by dotted paths, in the order of the declaration."""
    found: dict[str, FieldInfo] = {}
    for each in fields(spec):
        if _BLOCK in each.metadata:
            found |= rows_of(each.metadata[_BLOCK], f"{each.name}.")
        else:
            found[f"{prefix}{each.name}"] = each.metadata[_INFO]
    return found


# -- values in a file ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Range:
    """The bounds of a value, with pydantic's names. An infinite number is never allowed."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    min_length: int | None = None
    max_length: int | None = None
