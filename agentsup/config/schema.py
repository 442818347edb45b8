"""The JSON Schema of agents.json, generated from the same models and table that check it.

`python -m agentsup.config.schema` writes the shipped file; a test holds it up to date.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agentsup.config.entry import Entry
from agentsup.config.mcp import OTHERS_KEYS
from agentsup.config.sygen import ENTRY_KEYS, NOT_SUPPORTED, RENAMED
from agentsup.kit.files import write_atomic
from agentsup.model.agent import BLOCKS, FIELDS
from agentsup.model.name import RESERVED_NAMES

SHIPPED = Path(__file__).with_name("agents.schema.json")
"""The generated file inside the package."""

_NAME = {
    "type": "string",
    "pattern": r"^[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?!\.|$)){0,63}$",
    "not": {"enum": sorted(RESERVED_NAMES)},
}
_URL = {"type": "string", "pattern": "^https?://"}


def agents_schema() -> dict[str, Any]:
    """The schema of agents.json as plain JSON values."""
    generated = Entry.model_json_schema()
    definitions: dict[str, Any] = generated.pop("$defs", {})
    entry = _tidy(generated)
    properties = entry["properties"]
    for key, value in properties.items():
        block = BLOCKS.get(key)
        if key == "mcp":
            properties[key] = _servers(value, definitions)
        elif block is None:
            value["description"] = FIELDS[key].doc
        else:
            properties[key] = _block(key, definitions)
    properties["name"] |= _NAME
    properties["telegram_base_url"] = _nullable(properties["telegram_base_url"], _URL)
    properties["slots"]["anyOf"].append(
        {"type": "integer", "minimum": 1, "maximum": 1000, "description": "The same in each lane."}
    )
    properties["streaming"]["anyOf"].append({"type": "boolean"})
    for key in ENTRY_KEYS:
        properties[str(key)] = {"deprecated": True, "description": _old_key(str(key))}
    entry["description"] = "One agent."
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "agentsup agents.json",
        "anyOf": [
            {"$ref": "#/$defs/agents"},
            {
                "type": "object",
                "additionalProperties": False,
                "required": ["agents"],
                "properties": {
                    "$schema": {"type": "string"},
                    "agents": {"$ref": "#/$defs/agents"},
                },
            },
        ],
        "$defs": {"agents": {"type": "array", "items": {"$ref": "#/$defs/agent"}}, "agent": entry},
    }


def _tidy(value: Any) -> Any:
    """Without what only repeats the key's name (titles) or our own "not said" default (null)."""
    if isinstance(value, list):
        return [_tidy(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _tidy(each)
        for key, each in value.items()
        if not (key == "title" and isinstance(each, str))
        and not (key == "default" and each is None)
    }


def _block(key: str, definitions: dict[str, Any]) -> dict[str, Any]:
    (name,) = (each for each in definitions if each.lower() == f"{key}block")
    made = _tidy(definitions[name])
    made.pop("description", None)
    for inner, value in made["properties"].items():
        value["description"] = FIELDS[f"{key}.{inner}"].doc
    old = [each for each in (*RENAMED, *NOT_SUPPORTED) if len(each) == 2 and each[0] == key]
    for _, inner in old:
        made["properties"][str(inner)] = {"deprecated": True, "description": _reason((key, inner))}
    return {"anyOf": [made, {"type": "null"}]}


def _servers(value: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """`mcp`: any name, with the block of one server; nulls are as good as left out."""
    made = _tidy(value)
    one = _tidy(definitions["McpServerBlock"])
    one.pop("description", None)
    one["properties"] |= {key: {"deprecated": True} for key in OTHERS_KEYS}
    for option in made["anyOf"]:
        if option.get("type") == "object":
            option.pop("propertyNames", None)
            option["additionalProperties"] = one
            option["properties"] = {
                key: {"deprecated": True} for key in ("enabled", "servers", "mcpServers")
            }
    return {**made, "description": FIELDS["mcp"].doc}


def _nullable(value: dict[str, Any], shape: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [shape, {"type": "null"}], "description": value["description"]}


def _old_key(key: str) -> str:
    special = {
        "transport": "One transport; write transports.",
        "file_access": "Not supported: an agent sends files of its workspace only.",
        "docker": "Not supported: engines run on the machine of the daemon.",
    }
    return special.get(key) or _reason((key,))


def _reason(key: tuple[str | int, ...]) -> str:
    if key in RENAMED:
        return f"Accepted; the same as {'.'.join(map(str, RENAMED[key]))}."
    return f"Not supported: {NOT_SUPPORTED[key]}."


def schema_text() -> str:
    """The schema as the shipped file holds it."""
    return json.dumps(agents_schema(), indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    write_atomic(SHIPPED, schema_text().encode(), mode=0o644)
