"""Whole files of other programs in the place of agents.json, and their words for an agent's keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_IMPORT = "`agentsup import PATH` takes over what has a place here (see `agentsup docs moving`)"
_SERVERS = ("mcpServers", "context_servers", "mcp_servers")
_SYGEN = frozenset(
    {"cli_timeout", "max_turns", "telegram_token", "allowed_user_ids", "idle_timeout_minutes"}
)
_CLAUDE = frozenset({"permissions", "hooks", "projects", "enabledPlugins", "enabledMcpjsonServers"})
_INTO_AN_AGENT = (
    'put its servers into an agent: {"agents": [{"name": "main", "mcpServers": {...}}]}'
)
_PROMPT = 'here it is "prompt"'
_TOOLS = 'here it is "tools", the patterns of the tools that are offered'
_PEOPLE = 'here it is "allowed_user_ids" (Telegram), or "allowed_users" of "matrix"'
_OPTION = 'what is meant for the engine goes into "engine_options"'
OTHERS_WORDS: Mapping[str, str] = {
    "instructions": _PROMPT,
    "system_prompt": _PROMPT,
    "systemPrompt": _PROMPT,
    "timeout": 'here it is "turn_timeout_s", in seconds',
    "max_tokens": _OPTION,
    "maxTokens": _OPTION,
    "temperature": _OPTION,
    "api_key": _OPTION,
    "apiKey": _OPTION,
    "base_url": _OPTION,
    "baseUrl": _OPTION,
    "allowFrom": _PEOPLE,
    "allow_from": _PEOPLE,
    "allowed_tools": _TOOLS,
    "allowedTools": _TOOLS,
    "disallowedTools": _TOOLS,
    "disallowed_tools": _TOOLS,
    "channels": 'here it is "transports", with the keys of each',
    "bindings": 'here it is "transports", with the keys of each',
    "thinking": 'here it is "reasoning_effort"',
    "effort": 'here it is "reasoning_effort"',
    "models": 'here it is "model", one name; another is "fallback_model"',
    "fallbacks": 'here it is "fallback_model", one name',
    "permissions": 'here it is "permission_mode" and "tools"',
    "workspace": "the workspace of an agent is in the home of agentsup, under agents/NAME",
    "cron": "tasks are made in the chat or by `agentsup tasks`",
    "schedule": "tasks are made in the chat or by `agentsup tasks`",
}
"""Keys of agents in other programs whose loss would change what an agent does: our own word. A key
that only looks alike (max_steps for max_tokens) must not be proposed."""


def foreign_form(document: Mapping[str, Any]) -> tuple[str, str] | None:
    """A text about an object without a list of agents, and the remedy; None if its form is not
    known.

    The forms are told apart by the keys that their programs write; no value is quoted.
    """
    agents = document.get("agents")
    if isinstance(agents, dict):
        if agents.keys() & {"defaults", "list"}:
            return "this is the form of OpenClaw or nanobot", _IMPORT
        if _holds_objects(agents):
            return _by_name("agents")
        return None
    if any(isinstance(document.get(key), dict) for key in _SERVERS):
        return "this is a list of tool servers as other programs write it", _INTO_AN_AGENT
    if isinstance(document.get("servers"), dict) and _holds_objects(document["servers"]):
        return "this is VS Code's list of tool servers", _INTO_AN_AGENT
    schema, is_entry = document.get("$schema"), "name" in document
    servers = document.get("mcp")
    is_opencode = isinstance(servers, dict) and is_list_of_servers(servers.values())
    if "opencode" in str(schema) or (is_opencode and not is_entry):
        return "this is opencode's form", 'an agent is written {"agents": [{"name": "main", ...}]}'
    if document.keys() & _CLAUDE and not is_entry:
        hint = 'an agent that uses it is written {"agents": [{"name": "main", "engine": "claude"}]}'
        return "this is a settings file of Claude Code", hint
    if len(document.keys() & _SYGEN) > 1 and not is_entry:
        return "this is the settings file of Sygen", _IMPORT
    if is_list_of_servers(document.values()):
        return "this is a list of tool servers", _INTO_AN_AGENT
    if _holds_objects({k: v for k, v in document.items() if k != "$schema"}):
        return _by_name("the file")
    return None


def _by_name(what: str) -> tuple[str, str]:
    return (
        f"{what} has agents by their names, and here they are a list",
        'write {"agents": [{"name": "NAME", ...}, ...]}',
    )


def is_list_of_servers(given: Iterable[Any]) -> bool:
    """Whether these are tool servers: each has a command or an address, as no agent has."""
    found = list(given)
    return bool(found) and all(
        isinstance(each, dict) and bool(each.keys() & {"command", "url", "httpUrl", "serverUrl"})
        for each in found
    )


def _holds_objects(given: Mapping[str, Any]) -> bool:
    return bool(given) and all(isinstance(each, dict) for each in given.values())
