"""The arguments of the tools that give work to other agents, as models read them."""

from __future__ import annotations

__all__ = ["BROADCAST", "DISPATCH", "LIST", "MAX_TASKS", "ROUTE"]

MAX_TASKS = 12

_CAPABILITY = {
    "type": "string",
    "description": "What it takes, as list_team shows it; several with commas between them. Without "
    "it, whoever has least to do.",
}
_CAPABILITIES = {
    "type": ["array", "string"],
    "items": {"type": "string"},
    "description": "Another word for capability; a list.",
}
_SECONDS = {"type": "number", "description": "Seconds to wait at most; default 3600."}
_TRIES = {"type": "integer", "description": "How many others are asked after a failure; 0 to 5."}
ROUTE = {
    "type": "object",
    "properties": {
        "capability": _CAPABILITY,
        "required_capabilities": _CAPABILITIES,
        "prompt": {"type": "string"},
        "match": {"type": "string", "enum": ["any", "all"], "description": "Of several."},
        "timeout_s": _SECONDS,
        "retries": _TRIES,
        "fresh": {"type": "boolean", "description": "In a new session with that agent."},
        "background": {"type": "boolean", "description": "Don't wait for the answer."},
    },
    "required": ["prompt"],
    "additionalProperties": False,
}
_TASK = {
    "type": "object",
    "properties": {
        "capability": _CAPABILITY,
        "required_capabilities": _CAPABILITIES,
        "prompt": {"type": "string"},
        "timeout_s": _SECONDS,
        "retries": _TRIES,
    },
    "required": ["prompt"],
    "additionalProperties": False,
}
DISPATCH = {
    "type": "object",
    "properties": {
        "team": {"type": "string", "description": "Everyone of this team gets the prompt."},
        "prompt": {"type": "string"},
        "tasks": {"type": "array", "items": _TASK, "description": f"Or 1 to {MAX_TASKS} tasks."},
        "timeout_s": _SECONDS,
    },
    "additionalProperties": False,
}
BROADCAST = {
    "type": "object",
    "properties": {
        "prompt": {"type": "string"},
        "mode": {
            "type": "string",
            "enum": ["notify", "ask"],
            "description": "notify tells them and goes on; ask waits for their answers.",
        },
        "team": {"type": "string", "description": "Only this team; else everyone."},
        "timeout_s": _SECONDS,
    },
    "required": ["prompt"],
    "additionalProperties": False,
}
LIST = {
    "type": "object",
    "properties": {"include_self": {"type": "boolean"}},
    "additionalProperties": False,
}
