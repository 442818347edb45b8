"""The pages of ``docs/reference``, written from what the product itself says of its parts:
``python -m tests.component.reference.pages``.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from agentsup import __version__
from agentsup.api.server.app import ROUTES
from agentsup.api.server.openapi import document as openapi_document
from agentsup.cli.app import app
from agentsup.config.schema import config_schema
from agentsup.config.settings import setting_class
from agentsup.model.agent import BLOCKS, FIELDS, AgentSpec
from agentsup.model.tool import Tool
from tests.support.virtual_daemon import VirtualDaemon, agent

FOLDER = Path(__file__).parents[3] / "docs" / "reference"
_HEAD = (
    "# {title}\n\nWritten by `python -m tests.component.reference.pages` from the program itself; "
    "do not edit it.\n\n{intro}\n"
)
_LAYERS = ("main", "agent_defaults")
_NO_BOUND = 1_000_000
"""What is allowed beyond this is as good as without a bound."""


def page(title: str, intro: str, parts: Iterable[str]) -> str:
    """A whole page of Markdown."""
    return _HEAD.format(title=title, intro=intro) + "\n" + "\n".join(parts)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown; what would break a cell is escaped."""
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(_cell(each) for each in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").strip()


def _code(value: object) -> str:
    return f"`{value}`" if value not in ("", None) else ""


# -- settings -------------------------------------------------------------------------------------


def settings_page() -> str:
    """All keys of agents.json and config.toml."""
    schema = config_schema()
    agents = [
        (
            "## agents.json\n\nThe keys of an agent's entry. `[main]` and `[agent_defaults]` of config.toml "
            "have the same ones. The last column says what a change takes: *live* applies at once, "
            "*channel* connects the bot again, *rebuild* restarts that agent alone.\n\n"
        ),
        table(
            ("key", "meaning", "values", "default", "change"),
            _agent_rows(schema["$defs"]["agent"]["properties"]),
        ),
    ]
    daemon = [
        (
            "## config.toml\n\nEverything is optional. `AGENTSUP_API__PORT=8800` in the environment is "
            "`api.port`. *process* means: after a restart of the daemon.\n\n"
        ),
        table(
            ("key", "meaning", "values", "default", "change"),
            _setting_rows(schema, schema["properties"], ""),
        ),
    ]
    intro = "Secrets may be written as `env:NAME` or `file:PATH`. Both files are checked strictly; "
    return page("Settings", intro + "`agentsup agents validate` checks them.", [*agents, *daemon])


def _agent_rows(properties: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for key, row in FIELDS.items():
        block, dot, inner = key.partition(".")
        value = properties.get(block, {})
        if dot:
            value = next(each for each in value["anyOf"] if "properties" in each)
            value = value["properties"].get(inner, {})
        if block in BLOCKS and not dot:
            continue
        yield _code(key), row.doc, _values(value), _default(key), row.cls.value


def _default(key: str) -> str:
    holder: Any = AgentSpec
    for part in key.split(".")[:-1]:
        holder = BLOCKS[part]
    field = holder.__dataclass_fields__.get(key.rpartition(".")[2])
    default = getattr(field, "default", None)
    plain = isinstance(default, bool | int | float | str | tuple) and default not in ("", ())
    return _code(_shown(default)) if plain else ""


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _setting_rows(
    schema: Mapping[str, Any], properties: Mapping[str, Any], above: str
) -> Iterator[tuple[str, ...]]:
    for key, value in properties.items():
        if value.get("deprecated") or (not above and key in _LAYERS):
            continue
        name = f"{above}{key}"
        more = value.get("additionalProperties")
        reference = value.get("$ref") or (more.get("$ref") if isinstance(more, dict) else None)
        if reference:
            below = schema["$defs"][reference.rpartition("/")[2]]["properties"]
            yield from _setting_rows(schema, below, f"{name}." + ("NAME." if more else ""))
            continue
        default = value.get("default")
        shown = _code(_shown(default)) if default not in (None, "", []) else ""
        takes = setting_class(name.replace(".NAME.", ".")).value
        yield _code(name), value.get("description", ""), _values(value), shown, takes


def _values(value: Mapping[str, Any]) -> str:
    """What a value may be, in a few words."""
    if options := [each for each in value.get("anyOf", ()) if each.get("type") != "null"]:
        return " or ".join(dict.fromkeys(_values(each) for each in options))
    if "enum" in value:
        return ", ".join(f"`{each}`" for each in value["enum"])
    kind = {"boolean": "true or false", "integer": "whole number", "object": "table"}
    words = kind.get(value.get("type", ""), value.get("type", "").replace("string", "text"))
    if words == "array":
        return f"list of {_values(value.get('items', {})) or 'values'}"
    least = value.get("minimum", value.get("exclusiveMinimum"))
    most = value.get("maximum", value.get("exclusiveMaximum"))
    is_above = "exclusiveMinimum" in value
    if least is None or most is None or most > _NO_BOUND:
        bound = "above" if is_above else "at least"
        return words if least is None or least < 0 else f"{words}, {bound} {least}"
    return f"{words}, {'above ' if is_above else ''}{least} to {most:.0f}"


# -- tools ----------------------------------------------------------------------------------------


def tools_page(tools: Iterable[Tool]) -> str:
    """All built-in tools with what they may do."""
    rows = [
        (
            _code(tool.name),
            tool.description.partition("\n")[0],
            "only if named" if tool.is_optional else "always" if tool.is_essential else "yes",
            tool.safety.value,
            ", ".join(f"`{name}`" for name in tool.schema.get("properties", {})),
        )
        for tool in sorted(tools, key=lambda tool: tool.name)
    ]
    intro = (
        "Tools of agents. *By default* says whether an agent without `tools` has it. Before a "
        "*dangerous* call a person is asked; *moderate* and *safe* calls are made at once. Tools of "
        "[tool servers](../mcp.md) come besides."
    )
    heads = ("tool", "what it does", "by default", "safety", "arguments")
    return page("Tools", intro, [table(heads, rows)])


# -- commands -------------------------------------------------------------------------------------


def commands_page() -> str:
    """All commands of ``agentsup`` with their options."""
    root = typer.main.get_command(app)
    parts = list(_commands(root, "agentsup"))
    intro = "Every command takes `--help`. `--home PATH` may stand anywhere on the line."
    return page("Commands", intro, parts)


def _commands(command: Any, name: str) -> Iterator[str]:
    below_it: Mapping[str, Any] | None = getattr(command, "commands", None)
    if below_it is not None:
        for each, below in sorted(below_it.items()):
            if not below.hidden:
                yield from _commands(below, f"{name} {each}")
        return
    text = re.sub(r"\s*\n\s*", " ", (command.help or "").strip())
    context = command.make_context(name, [], resilient_parsing=True)
    usage = " ".join(command.collect_usage_pieces(context))
    options = [
        (_code(", ".join(each.opts)), each.help or "")
        for each in command.params
        if each.param_type_name == "option" and not each.hidden
    ]
    shown = "\n" + table(("option", "meaning"), options) if options else ""
    yield f"## {name}\n\n`{name} {usage}`\n\n{text}\n{shown}"


# -- HTTP -----------------------------------------------------------------------------------------


def http_page() -> str:
    """All routes, by what they are for."""
    made = openapi_document(ROUTES, version=__version__)
    rows = [
        (f"`{method.upper()} {path}`", operation.get("summary", "") or operation["description"])
        for path, operations in made["paths"].items()
        for method, operation in operations.items()
    ]
    intro = (
        "All routes. Bodies, answers and errors are in the OpenAPI document that a running daemon "
        "serves at `/openapi.json`; [the HTTP API](../http-api.md) says what holds for all."
    )
    return page("HTTP routes", intro, [table(("route", "what it does"), rows)])


def pages(tools: Iterable[Tool]) -> dict[str, str]:
    """The text of each page by its name."""
    return {
        "settings.md": settings_page(),
        "tools.md": tools_page(tools),
        "commands.md": commands_page(),
        "http.md": http_page(),
    }


async def _main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        house = await VirtualDaemon.open(Path(folder) / "home", [agent("ann")])
        made = pages(house.daemon.calls.tools.all())
        await house.stop()
    FOLDER.mkdir(exist_ok=True)
    for name, text in made.items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(_main())
