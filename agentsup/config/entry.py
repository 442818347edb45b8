"""The schema of one agent's declaration: an entry of agents.json, ``[main]``, ``[agent_defaults]``.

All keys are optional here; ``merge`` decides which layer gives which value. Types are strict: a
text is no number and a number is no truth value. The keys, their types and ranges are those of
``AgentSpec``; here is only how values of each kind are written and checked.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model

from agentsup.config.findings import KeyPath, kind_of
from agentsup.config.mcp import McpServer
from agentsup.config.mcp import name_problem as server_name_problem
from agentsup.config.settings_file import timezone_name
from agentsup.config.sygen import ENTRY_KEYS, mode_of
from agentsup.model.agent import BLOCKS, AgentSpec, EventSubscription
from agentsup.model.agent_fields import Range
from agentsup.model.name import BUILTIN_ROLES, name_problem

MAX_OPTION_DEPTH = 16
"""The deepest nesting of engine options."""

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_MATRIX_USER = re.compile(r"@[^:\s]+:[^\s]+")
_MATRIX_ROOM = re.compile(r"![^\s/]+")


def _without(problem_of: Callable[[str], str | None]) -> AfterValidator:
    """A check that refuses a text with the problem that is found in it."""

    def check(text: str) -> str:
        if problem := problem_of(text):
            raise ValueError(problem)
        return text

    return AfterValidator(check)


def _name_or_role_problem(text: str) -> str | None:
    return None if text.casefold() in BUILTIN_ROLES else name_problem(text)


def _secret(text: str) -> str:
    kind, colon, rest = text.partition(":")
    if colon and kind == "env" and not _ENV_NAME.fullmatch(rest):
        raise ValueError("env: is followed by the name of an environment variable")
    if colon and kind == "file" and not rest.strip():
        raise ValueError("file: is followed by the path of a file")
    if kind != "file" and (not text or not text.isprintable() or " " in text):
        raise ValueError("a secret is one word, env:NAME or file:PATH")
    return text


def _password(text: str) -> str:
    return text if text and not text.startswith(("env:", "file:")) else _secret(text)


def _url(text: str) -> str:
    if not re.fullmatch(r"https?://[^\s/]+\S*", text):
        raise ValueError("a URL starts with http:// or https:// and names a host")
    return text


def _matrix_user(text: str) -> str:
    if not _MATRIX_USER.fullmatch(text):
        raise ValueError("a Matrix user id looks like @name:server")
    return text


def _matrix_room(text: str) -> str:
    if text.startswith("#"):
        raise ValueError(
            "an alias can be given to another room; name the room by its id, which begins with ! "
            "(Element: room settings, Advanced)"
        )
    if not _MATRIX_ROOM.fullmatch(text):
        raise ValueError("a Matrix room id looks like !id:server")
    return text


def _server_url(text: str) -> str:
    return _secret(text) if text.startswith(("env:", "file:")) else _url(text)


def _folder(text: str) -> str:
    if not text.startswith("/"):
        raise ValueError("a folder to work in is an absolute path")
    return text


def _server_type(text: str) -> str:
    if text not in ("stdio", "http"):
        raise ValueError("a server is of type stdio or http")
    return text


def _given(values: dict[str, str]) -> dict[str, str]:
    """Check named values for a server: its environment or its headers."""
    for name, value in values.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", name, re.ASCII):
            raise ValueError("a name here has letters, digits, '_' and '-' only")
        if "\0" in value or "\n" in value or "\r" in value:
            raise ValueError(f"the value of {name} has a line break")
        if value.startswith(("env:", "file:")):
            _secret(value)
    return values


def _watch(text: str) -> str:
    EventSubscription.parse(text)
    return text


def _options(options: dict[str, Any]) -> dict[str, Any]:
    """Check that options are plain JSON values and not nested too deep, since engines get them as
    they are."""
    waiting: list[tuple[object, int]] = [(options, 1)]
    while waiting:
        value, depth = waiting.pop()
        if depth > MAX_OPTION_DEPTH:
            raise ValueError(f"options are nested more than {MAX_OPTION_DEPTH} levels deep")
        if isinstance(value, dict):
            waiting.extend((each, depth + 1) for each in value.values())
        elif isinstance(value, list):
            waiting.extend((each, depth + 1) for each in value)
        elif not isinstance(value, str | bool | int | float | None):
            raise ValueError("an option is a text, number, true, false, null, list or object")  # noqa: TRY004 - pydantic collects ValueError
        elif isinstance(value, float) and not math.isfinite(value):
            raise ValueError("infinity and nan are no options")
    return options


class Strict(BaseModel):
    """A block of a file: unknown keys and wrong types are findings; values never appear in
    messages."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        hide_input_in_errors=True,
        regex_engine="python-re",
        allow_inf_nan=False,
    )


_SERVER_TEXT = Annotated[str, Field(max_length=4096, pattern=r"^[^\x00]*$")]
_WORD = Annotated[str, Field(min_length=1, max_length=200)]
_OF_KIND: Mapping[str, Any] = {
    "name": Annotated[str, _without(name_problem)],
    "name_or_role": Annotated[str, _without(_name_or_role_problem)],
    "secret": Annotated[str, AfterValidator(_secret)],
    "password": Annotated[str, AfterValidator(_password)],
    "url": Annotated[str, AfterValidator(_url)],
    "matrix_user": Annotated[str, AfterValidator(_matrix_user)],
    "matrix_room": Annotated[str, AfterValidator(_matrix_room)],
    "timezone": Annotated[str, AfterValidator(timezone_name)],
    "subscription": Annotated[str, AfterValidator(_watch)],
    "options": Annotated[dict[str, Any], AfterValidator(_options)],
    "servers": dict[str, Any],
    "program": Annotated[_SERVER_TEXT, Field(min_length=1)],
    "arguments": Annotated[list[_SERVER_TEXT], Field(max_length=200)],
    "values": Annotated[dict[str, str], AfterValidator(_given)],
    "folder": Annotated[_SERVER_TEXT, AfterValidator(_folder)],
    "server_url": Annotated[str, AfterValidator(_server_url)],
    "safety": dict[_WORD, Literal["safe", "moderate", "dangerous"]],
}
"""The values of each kind as they are written in a file."""


def _written(declared: Any) -> Any:
    """The type of a value as it is written in a file, for the type of a field."""
    parts, origin = get_args(declared), get_origin(declared)
    if origin is Annotated:
        mark = declared.__metadata__[0]
        if isinstance(mark, Range):
            return Annotated[parts[0], Field(**asdict(mark))]
        return _OF_KIND[mark] if isinstance(mark, str) else mark
    if origin is tuple:
        return list[_written(parts[0])]  # type: ignore[misc]  # made while the program runs
    if origin in (Union, UnionType):
        return Union[tuple(map(_written, parts))]  # noqa: UP007 - made while the program runs
    return declared


def _optional(keys: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a model whose keys may all be left out."""
    return {key: (kind | None, None) for key, kind in keys.items()}


def _keys_of(spec: type) -> dict[str, Any]:
    hints = get_type_hints(spec, include_extras=True)
    return {key: _written(declared) for key, declared in hints.items()}


_server = _keys_of(McpServer) | {"type": Annotated[str, AfterValidator(_server_type)]}
McpServerBlock = create_model(
    "McpServerBlock",
    __base__=Strict,
    **_optional({key: kind for key, kind in _server.items() if key != "name"}),
)
"""One server of ``mcp``. Rules over several keys are checked after all layers are merged."""

BLOCK_MODELS: dict[str, type[Strict]] = {
    key: create_model(f"{key.capitalize()}Block", __base__=Strict, **_optional(_keys_of(spec)))
    for key, spec in BLOCKS.items()
}
"""The blocks of an entry, after shorthands were expanded."""

_entry = _keys_of(AgentSpec) | BLOCK_MODELS
_entry["mcp"] = dict[Annotated[str, _without(server_name_problem)], McpServerBlock]
AgentEntry = create_model(
    "AgentEntry", __base__=Strict, **_optional(_entry) | {"name": (_entry["name"], ...)}
)
"""One entry of agents.json."""


def known_keys(where: KeyPath) -> Iterable[str]:
    """The known keys of the object at ``where``, a path within the entry."""
    if not where:
        return AgentEntry.model_fields
    if where[0] == "mcp":
        return McpServerBlock.model_fields if len(where) == 2 else ()
    block = BLOCK_MODELS.get(str(where[-1]))
    return block.model_fields if block else ()


def expand_shorthands(values: dict[str, Any]) -> None:
    """Expand ``slots: 3`` to a block with every lane, and ``streaming: true`` to its block."""
    slots = values.get("slots")
    if isinstance(slots, int) and not isinstance(slots, bool):
        values["slots"] = dict.fromkeys(BLOCK_MODELS["slots"].model_fields, slots)
    if isinstance(values.get("streaming"), bool):
        values["streaming"] = {"mode": mode_of(values["streaming"])}


def without_nulls(values: Mapping[str, Any]) -> dict[str, Any]:
    """Drop known keys that are null, in the entry and its blocks: null means "not set here".

    An unknown key stays, so that it is reported even if it is null.
    """
    given = {
        key: value
        for key, value in values.items()
        if value is not None or (key not in AgentEntry.model_fields and key not in ENTRY_KEYS)
    }
    for block, model in BLOCK_MODELS.items():
        if isinstance(given.get(block), dict):
            given[block] = {
                key: value
                for key, value in given[block].items()
                if value is not None or key not in model.model_fields
            }
    return given


def wrong_shape(value: object, expected: str) -> str:
    """The sentence for a value that is not the expected object or list."""
    return f"expected {expected}, found {kind_of(value)}"
