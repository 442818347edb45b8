"""The JSON Schemas of agents.json and config.toml, generated from what checks the files.

``python -m agentsup.config.schema`` writes the shipped files; a test ensures that they are current.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agentsup.config.entry import AgentEntry
from agentsup.config.foreign import OTHERS_KEYS
from agentsup.config.settings_file import WITHOUT_EFFECT, SettingsFile
from agentsup.config.sygen import ENTRY_KEYS, NOT_SUPPORTED, RENAMED
from agentsup.kit.files import write_atomic
from agentsup.model.agent import BLOCKS, FIELDS
from agentsup.model.name import RESERVED_NAMES

AGENTS_FILE = "agents.schema.json"
"""Name of the schema of agents.json, in the package and in a home."""
CONFIG_FILE = "config.schema.json"
"""The same for config.toml."""
_DIALECT = "https://json-schema.org/draft/2020-12/schema"

_NAME = {
    "type": "string",
    "pattern": r"^[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?!\.|$)){0,63}$",
    "not": {"enum": sorted(RESERVED_NAMES)},
}
_URL = {"type": "string", "pattern": "^https?://"}


def agents_schema() -> dict[str, Any]:
    """The schema of agents.json as plain JSON values."""
    generated = AgentEntry.model_json_schema()
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
    properties["telegram_base_url"]["anyOf"] = [_URL, {"type": "null"}]
    properties["slots"]["anyOf"].append(
        {"type": "integer", "minimum": 1, "maximum": 1000, "description": "The same in each lane."}
    )
    properties["streaming"]["anyOf"].append({"type": "boolean"})
    for key in ENTRY_KEYS:
        properties[str(key)] = {"deprecated": True, "description": _old_key(str(key))}
    entry["description"] = "One agent."
    return {
        "$schema": _DIALECT,
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
    """Without titles, which repeat the key's name, and without our default null ("not set")."""
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
    first = " ".join((BLOCKS[key].__doc__ or "").split()).partition(". ")[0]
    return {"anyOf": [made, {"type": "null"}], "description": first.replace("``", "")}


def _servers(value: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """``mcp``: any name, with the block of one server; nulls are allowed."""
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


def config_schema() -> dict[str, Any]:
    """The schema of config.toml as plain JSON values."""
    made = _tidy(SettingsFile.model_json_schema())
    entry = agents_schema()["$defs"]["agent"]
    layer = {key: value for key, value in entry.items() if key not in ("required", "description")}
    layer["properties"] = {key: each for key, each in entry["properties"].items() if key != "name"}
    made["$defs"]["agent"] = layer
    for table, meaning in (
        ("main", "The main agent: the keys of an entry of agents.json."),
        ("agent_defaults", "What every agent starts from; its own entry wins."),
    ):
        made["properties"][table] = {"$ref": "#/$defs/agent", "description": meaning}
    unread = {
        table: {key: {"deprecated": True, "description": why} for key, why in keys.items()}
        for table, keys in WITHOUT_EFFECT.items()
    }
    made["$defs"]["LimitSettings"]["properties"] |= unread["limits"]
    made["properties"]["traces"] = {
        "description": "Has no effect any more: traces are read from what is stored.",
        "additionalProperties": False,
        "deprecated": True,
        "properties": unread["traces"],
        "type": "object",
    }
    made["$defs"]["ApiSettings"]["properties"]["interagent_port"] = {
        "deprecated": True,
        "description": "The same as port.",
    }
    made.pop("description", None)
    return {"$schema": _DIALECT, "title": "agentsup config.toml", **made}


def schema_texts() -> dict[str, str]:
    """The texts of the shipped files by name."""
    schemas = {AGENTS_FILE: agents_schema(), CONFIG_FILE: config_schema()}
    return {
        name: json.dumps(schema, indent=2, sort_keys=True) + "\n"
        for name, schema in schemas.items()
    }


if __name__ == "__main__":
    for name, text in schema_texts().items():
        write_atomic(Path(__file__).with_name(name), text.encode(), mode=0o644)
