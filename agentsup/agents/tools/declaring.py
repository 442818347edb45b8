"""Declares tools at the functions that carry them out, with their arguments as pydantic models, and
holds them by name.

An error in an argument is a clear message for the model. A null argument counts as not given: many
models fill in arguments that they do not need.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Annotated, Any, ClassVar, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import core_schema

from agentsup.model.errors import AgentsupError, BadRequest
from agentsup.model.tool import Effect, Safety, Tool, ToolContext

MAX_NUMBER = 10**18
"""The largest whole number that is accepted; no argument of a tool needs a larger one."""
_NAMES, _NAME_CHARS = 5, 60
"""The largest number of unknown arguments that are named, and of characters shown of each."""
_SHOWN = frozenset(["type", "enum", "items", "required", "description", "minimum", "maximum"])
"""The keywords of a property's JSON Schema that are kept."""
F = TypeVar("F", bound=Callable[..., Any])


class Arguments(BaseModel):
    """The base of the models. Arguments that a model does not declare are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)

    also: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Other names of an argument; the first one that is not blank counts."""
    nullable: ClassVar[frozenset[str]] = frozenset()
    """Arguments in which a null is a value."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        given = {n: v for n, v in value.items() if v is not None or n in cls.nullable}
        for name, others in cls.also.items():
            named = (each for each in (name, *others) if not _is_blank(given.get(each)))
            if (found := next(named, None)) is not None:
                given[name] = given[found]
        return given


class NoArguments(Arguments):
    """For tools without arguments."""


A = TypeVar("A", bound=Arguments)


def checked(
    model: type[A], problem: Callable[[A], str | None]
) -> Callable[[dict[str, Any]], str | None]:
    """The ``check`` of a ``Tool``: why its arguments can't be read, or what ``problem`` says."""

    def check(args: dict[str, Any]) -> str | None:
        try:
            return problem(read(model, args))
        except AgentsupError as error:
            return error.message

    return check


def read(model: type[A], args: Mapping[str, Any]) -> A:
    """The arguments as the model. Raises ``BadRequest`` naming the field."""
    try:
        return model.model_validate(dict(args))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    name = next((each for each in reversed(first["loc"]) if isinstance(each, str)), "")
    match first["type"]:
        case "missing":
            why = "is missing"
        case "value_error":
            why = str(first["ctx"]["error"])
        case _:  # everything else has a check of its own
            why = "must be a list of objects"
    raise BadRequest(f"the argument {name!r} {why}", field=name)


def missing(name: str) -> BadRequest:
    """The error for an argument that is not given."""
    return BadRequest(f"the argument {name!r} is missing", field=name)


@cache
def schema_of(model: type[Arguments]) -> dict[str, Any]:
    """The JSON Schema of the arguments, without references, which some engines can't read.

    It is made at the first look at a tool, as is what checks the arguments: most agents use few.
    """
    schema = model.model_json_schema()
    return _plain({**schema, "description": None}, schema.get("$defs", {}))


def _plain(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        return _plain({**defs[schema["$ref"].rpartition("/")[2]], "description": None}, defs)
    if "anyOf" in schema:  # of a type and null
        [kind] = [each for each in schema["anyOf"] if each != {"type": "null"}]
        schema = {**kind, **schema}
    found = {key: value for key, value in schema.items() if key in _SHOWN and value is not None}
    if "items" in found:
        found["items"] = _plain(found["items"], defs)
    if found.get("type") == "object":
        properties = schema.get("properties", {})
        found["properties"] = {name: _plain(each, defs) for name, each in properties.items()}
        found["additionalProperties"] = False
    return found


async def with_unknown_arguments(tool: Tool, context: ToolContext, args: dict[str, Any]) -> str:
    """Run the tool. The result also names the given arguments that the tool does not have."""
    text = await tool.run(context, args)
    schema = tool.schema
    # The daemon itself adds a person's answer as an argument beside the question.
    if schema.get("additionalProperties") is not False or tool.is_for_people:
        return text
    unknown = [name for name in args if name not in schema.get("properties", {})]
    if not unknown:
        return text
    names = ", ".join(repr(name)[:_NAME_CHARS] for name in unknown[:_NAMES])
    return f"{text}\n[{tool.name} has no argument {names}; it was ignored]"


# -- kinds of values -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Check:
    """The check of one kind of value and its JSON Schema.

    ``run`` returns the value, or raises ``ValueError`` with what follows the argument's name.
    """

    run: Callable[[Any], Any]
    schema: Mapping[str, Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self.run)

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> dict[str, Any]:
        return dict(self.schema)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be a string")  # noqa: TRY004 - pydantic's protocol
    return value


def _needed(value: Any) -> str:
    if not _text(value).strip():
        raise ValueError("is missing")
    return _text(value)


def _is_blank(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")  # noqa: TRY004 - pydantic's protocol
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("must be a number")  # noqa: TRY004 - pydantic's protocol
    # JSON as models write it may have NaN, Infinity and numbers of any length.
    if not (math.isfinite(value) if isinstance(value, float) else abs(value) <= MAX_NUMBER):
        raise ValueError("must be a finite number")
    return float(value)


def strings(value: Any) -> tuple[str, ...]:
    """A list of strings. Raises ``ValueError``."""
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError("must be a list of strings")
    return tuple(value)


def _filled(value: Any) -> str:
    if not (found := _text(value).strip()):
        raise ValueError("is blank")
    return found


def line(most: int, *, is_needed: bool = False) -> Check:
    """One line of at most ``most`` characters, without blanks around it."""

    def run(value: Any) -> str:
        found = _filled(value) if is_needed else _text(value).strip()
        if len(found) > most or len(found.splitlines()) > 1:
            raise ValueError(f"must be one line of at most {most} characters")
        return found

    return Check(run, {"type": "string"})


def whole(low: int, high: int) -> Check:
    """A whole number, brought between ``low`` and ``high``."""
    return Check(lambda value: max(low, min(high, int(_number(value)))), {"type": "integer"})


def between(low: float, high: float, why: str, *, has_low: bool = True) -> Check:
    """A number from ``low`` (or over it) to ``high``; ``why`` says so."""

    def run(value: Any) -> float:
        found = _number(value)
        if not low <= found <= high or (found == low and not has_low):
            raise ValueError(why)
        return found

    return Check(run, {"type": "number"})


def choice(*options: str) -> Check:
    """One of these strings."""

    def run(value: Any) -> str:
        if _text(value) not in options:
            raise ValueError(f"must be one of {', '.join(options)}")
        return str(value)

    return Check(run, {"type": "string", "enum": list(options)})


def offered(*options: str) -> Check:
    """A text whose schema names these options. The tool checks it itself."""
    return Check(_text, {"type": "string", "enum": list(options)})


Text = Annotated[str, Check(_text, {"type": "string"})]
Needed = Annotated[str, Check(_needed, {"type": "string"})]
"""A text that is not blank."""
Filled = Annotated[str, Check(_filled, {"type": "string"})]
"""A text that is not blank, without blanks around it."""
Trimmed = Annotated[str, Check(lambda value: _text(value).strip(), {"type": "string"})]
Flag = Annotated[bool, Check(_flag, {"type": "boolean"})]
Number = Annotated[float, Check(_number, {"type": "number"})]
"""A finite number."""
Whole = Annotated[int, Check(lambda value: int(_number(value)), {"type": "integer"})]
Texts = Annotated[tuple[str, ...], Check(strings, {"type": "array", "items": {"type": "string"}})]


def tool(name: str, effect: Effect, safety: Safety, **facts: Any) -> Callable[[F], F]:
    """Declare a function as the tool ``name``; ``facts`` are further fields of ``Tool``.

    The function takes the ``ToolContext`` and, if the tool has arguments, their model as ``args``.
    Its docstring is what models read about the tool.
    """

    def declare(function: F) -> F:
        function.__dict__["tool"] = partial(Tool, name, effect=effect, safety=safety, **facts)
        return function

    return declare


def tool_of(function: Callable[..., Awaitable[str]]) -> Tool:
    """The tool that a function, or a method of an object, is declared as."""
    model = get_type_hints(function).get("args", NoArguments)

    async def run(context: ToolContext, args: dict[str, Any]) -> str:
        given = () if model is NoArguments else (read(model, args),)
        return await function(context, *given)

    made: partial[Tool] = function.__dict__["tool"]
    return made(" ".join((function.__doc__ or "").split()), partial(schema_of, model), run)


def tools_of(owner: object) -> tuple[Tool, ...]:
    """The tools that the methods of an object are declared as, in their order."""
    named = (
        name for name, each in vars(type(owner)).items() if "tool" in getattr(each, "__dict__", {})
    )
    return tuple(tool_of(getattr(owner, name)) for name in named)


class Tools:
    """Implements ``model.tool.ToolRegistry``."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        """Raises ``ValueError`` for two tools of one name."""
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            if tool.name in self._tools:
                raise ValueError(f"two tools are called {tool.name}")
            self._tools[tool.name] = tool

    def get(self, name: str) -> Tool | None:
        return self._tools.get(name)

    async def wait_for_tool(self, name: str) -> Tool | None:
        return self.get(name)

    def all(self) -> tuple[Tool, ...]:
        return tuple(self._tools.values())
