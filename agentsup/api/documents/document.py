"""The base of every JSON answer of the API. OpenAPI shows the documents, and tests hold answers to
them.

Times ending in ``_at`` are wall time in whole milliseconds since 1970-01-01 UTC; ``uptime`` and
``eta_s`` are seconds; ``elapsed_ms`` is milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.fields import FieldInfo

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

T = TypeVar("T")
C = TypeVar("C")


def page_of(
    found: Sequence[T], limit: int, cursor: Callable[[T], C]
) -> tuple[Sequence[T], C | None]:
    """The first ``limit`` of what was found, and the ``cursor`` of the last one if there are more:
    for that, one more than ``limit`` is asked for."""
    page = found[:limit]
    return page, cursor(page[-1]) if len(found) > limit else None


class Document:
    """A JSON object that the API answers; later versions may add members.

    Its annotations are the members. pydantic's ``Field`` gives one a default and a description;
    one without a default is required. What the daemon knows is not checked again. An optional
    member that is not given is left out of the answer.

    A document is no model of pydantic, of which each takes ten times the memory. ``as_model``
    makes one for OpenAPI.
    """

    _members: ClassVar[dict[str, str | None]] = {}
    """The description of each, in their order."""
    _required: ClassVar[tuple[str, ...]] = ()
    _model: ClassVar[type[BaseModel]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        descriptions: dict[str, str | None] = {}
        required: dict[str, None] = {}
        for base in reversed(cls.__mro__):
            descriptions |= vars(base).get("_members", {})
            required |= dict.fromkeys(vars(base).get("_required", ()))
        for name in vars(cls).get("__annotations__", {}):
            given = vars(cls).get(name, ...)
            field: FieldInfo = given if isinstance(given, FieldInfo) else Field(given)
            descriptions[name] = field.description
            required.pop(name, None)
            if not field.is_required():
                setattr(cls, name, field.default)
                continue
            required[name] = None
            if name in vars(cls):
                delattr(cls, name)
        cls._members, cls._required = descriptions, tuple(required)

    def __init__(self, /, **members: Any) -> None:
        """The document with ``members``; names that it does not have are ignored."""
        vars(self).update((name, members[name]) for name in self._members if name in members)

    @classmethod
    def from_value(cls, value: object, /, **members: Any) -> Self:
        """The document with ``members``; the other required ones are the attributes of ``value``
        with their names. Raises ``AttributeError`` for one that it does not have."""
        for name in cls._required:
            if name not in members:
                members[name] = getattr(value, name)
        return cls(**members)

    def with_members(self, **members: Any) -> Self:
        """A copy in which ``members`` take the place of others."""
        return type(self)(**{**vars(self), **members})

    def members(self) -> dict[str, Any]:
        """The members that are answered."""
        return vars(self)

    @classmethod
    def as_model(cls) -> type[BaseModel]:
        """A model of pydantic with the same members, for the JSON schema; made at the first call."""
        if "_model" not in vars(cls):
            hints = get_type_hints(cls, include_extras=True)
            fields: dict[str, Any] = {}
            for name, description in cls._members.items():
                default = ... if name in cls._required else getattr(cls, name)
                fields[name] = (hints[name], Field(default, description=description))
            cls._model = create_model(
                cls.__name__,
                __config__=ConfigDict(extra="forbid", defer_build=True),
                __doc__=vars(cls).get("__doc__"),
                __module__=cls.__module__,
                **fields,
            )
        return cls._model

    @classmethod
    def __get_pydantic_core_schema__(cls, _: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """For models that have documents as members."""
        return handler(cls.as_model())


class Problem(BaseModel):
    """RFC 9457. `code` is stable; further members are facts of the error."""

    model_config = ConfigDict(extra="allow", defer_build=True)
    type: str
    title: str
    status: int
    detail: str
    code: str
    request_id: str
    field: str | None = Field(None, description="the wrong field, on 400")


class LegacyProblem(Problem):
    """A problem that also carries the members older clients read."""

    success: Literal[False]
    error: str
    text: str | None = Field(None, description="what is known of a failed answer")


class DoneDocument(Document):
    """The answer to a change that was made."""

    success: Literal[True]
