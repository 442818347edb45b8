"""Converts what is written for other programs: tool servers, files in place of agents.json, and
other names of an agent's keys.

A server is converted to our form, or left out with the reason. A key that is harmless to lose is
dropped with a warning. A key that has a meaning here is converted, with its unit. If the loss of a
key would permit more than was meant (excluded tools), that server is switched off, and the warning
says what to write.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from agentsup.config.findings import KeyPath, Report

_HTTP_TYPES = ("streamable-http", "streamablehttp", "streamable_http", "remote")
_STDIO_TYPES = ("local", "command")
_UNSPOKEN = "sse"
_PLACEHOLDER = re.compile(r"\$?\{(?:env:|input:)?([A-Za-z_][\w.-]*)\}", re.ASCII)
_MOST_S = 3600.0
_FROM_MS = 1000
"""From this number on, a time without a unit is in milliseconds: nobody waits for so many seconds
by intent, and for so few milliseconds neither."""

_RENAMED: Mapping[str, str] = {
    "cmd": "command",
    "workingDirectory": "cwd",
    "environment": "env",
    "envs": "env",
    "http_headers": "headers",
    "httpUrl": "url",
    "serverUrl": "url",
    "uri": "url",
    "includeTools": "tools",
    "enabledTools": "tools",
    "enabled_tools": "tools",
    "available_tools": "tools",
}
"""Keys with the same meaning under another name."""
_TIMES: Mapping[str, str] = {
    "timeout": "call_timeout_s",
    "toolTimeout": "call_timeout_s",
    "tool_timeout_sec": "call_timeout_s",
    "startup_timeout_seconds": "start_timeout_s",
    "startup_timeout_sec": "start_timeout_s",
    "startup_timeout_ms": "start_timeout_s",
    "connect_timeout": "start_timeout_s",
}
_EXCLUDED = ("excludeTools", "disabledTools", "disabled_tools")
_NOT_TAKEN: Mapping[str, tuple[str, str | None]] = {
    "autoApprove": (
        "a server's word about its tools is not enough",
        'name the tools that may be called unasked: "safety": {"NAME": "safe"}',
    ),
    "trust": (
        "each call is judged by itself",
        'tools that may be called unasked are named: "safety": {"*": "safe"}',
    ),
    "auto_restart": ("a server that ends is always started again, after growing pauses", None),
}
"""Keys that are accepted and have no effect: the reason, and what to write instead."""
_ALIKE = {"alwaysAllow": "autoApprove", "alwaysApprove": "autoApprove"}
_REFUSED: Mapping[str, str] = {
    "envFile": 'write its variables one by one: "env": {"NAME": "env:NAME"}, or "file:PATH"',
    "env_file": 'write its variables one by one: "env": {"NAME": "env:NAME"}, or "file:PATH"',
    "oauth": 'give a token: "headers": {"Authorization": "Bearer env:NAME"}',
    "auth": 'give a token: "headers": {"Authorization": "Bearer env:NAME"}',
    "bearer_token_env_var": 'write "headers": {"Authorization": "Bearer env:NAME"}',
    "env_http_headers": 'write "headers": {"NAME": "env:VARIABLE"}',
    "requestInit": 'write its headers: "headers": {"NAME": "VALUE"}',
    "headersHelper": 'give a token: "headers": {"Authorization": "Bearer env:NAME"}',
}
"""Keys without which the server would not be the one that was meant, and what to write."""
_SILENT = ("restart_delay_seconds", "transportType")
_HARMLESS = (
    *("author", "bundled", "category", "categories", "comment", "description", "dev"),
    *("displayName", "display_name", "docs", "documentation", "gallery", "homepage", "icon"),
    *("iconUrl", "id", "installed", "license", "link", "logo", "name", "note", "notes"),
    *("provider", "repository", "source", "tags", "title", "version", "watchPaths"),
)
"""Keys for people or for the other program's screens."""

OTHERS_KEYS = (
    *("disabled", "isActive", "transport", *_RENAMED, *_TIMES, *_EXCLUDED, *_NOT_TAKEN),
    *(*_ALIKE, *_REFUSED, *_SILENT, *_HARMLESS),
)
"""Keys of a server that other programs use."""


def translate_server(server: Any, at: KeyPath, report: Report) -> Any:
    """One server in our keys; anything that is no object unchanged. ``at`` is its key path."""
    if not isinstance(server, dict):
        return server
    made = {key: value for key, value in server.items() if value is not None}
    _drop(made, at, report)
    _command(made, at, report)
    for theirs, ours in _RENAMED.items():
        if theirs in made and not made.get(ours):
            made[ours] = made.pop(theirs)
    for key in ("command", "url"):
        if made.get(key) == "" and made.get("url" if key == "command" else "command"):
            del made[key]  # Sygen saves the unused one of the two as ""
    _times(made, at, report)
    _switch(made, at, report)
    _values(made)
    _type(made, at, report)
    if isinstance(made.get("tools"), dict):  # Hermes: both in one object
        both = made.pop("tools")
        made |= {"tools": both["include"]} if both.get("include") else {}
        made |= {"excludeTools": both["exclude"]} if both.get("exclude") else {}
    _excluded(made, at, report)
    for key, hint in _REFUSED.items():
        if made.pop(key, None):
            _switch_off(made, (*at, key), f"{key} is not supported", hint, report)
    return made


def is_bare(command: str) -> bool:
    """Whether a command is a line of words: a program's name, and what should be its arguments."""
    words = command.split()
    return len(words) > 1 and "/" not in words[0]


def as_words(command: str) -> str:
    """The command line in our form."""
    try:
        program, *args = shlex.split(command)
    except ValueError:
        program, *args = command.split()
    quoted = ", ".join(f'"{each}"' for each in args)
    return f'write "command": "{program}", "args": [{quoted}]'


def placeholder_in(text: str) -> bool:
    """Whether a text has a place that another program would fill: ``${NAME}``, ``{env:NAME}``."""
    found = _PLACEHOLDER.search(text)
    return found is not None and ("$" in found.group() or ":" in found.group())


def usable_name(name: str, problem_of: Callable[[str], str | None]) -> str | None:
    """A name like ``name`` that a server can have, or None."""
    made = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:32].strip("-")
    return made if made and problem_of(made) is None else None


# -- inside ----------------------------------------------------------------------------------------


def _switch_off(
    made: dict[str, Any], at: KeyPath, why: str, hint: str | None, report: Report
) -> None:
    made["enabled"] = False
    report.warning(at, f"{why}, so this server is left out", hint)


def _drop(made: dict[str, Any], at: KeyPath, report: Report) -> None:
    for key in list(made):
        if key in _SILENT:
            del made[key]
        elif key in _HARMLESS or key.startswith(("_", "$", "//")):
            del made[key]
            report.warning((*at, key), f"{key[:60]} has no effect here")
    for alike, key in _ALIKE.items():
        if alike in made:
            _drop_one(made, alike, _NOT_TAKEN[key], at, report)
    if made.get("auto_restart") is True:
        del made["auto_restart"]
    for key, reason in _NOT_TAKEN.items():
        _drop_one(made, key, reason, at, report)


def _drop_one(
    made: dict[str, Any], key: str, reason: tuple[str, str | None], at: KeyPath, report: Report
) -> None:
    if key not in made:
        return
    value = made.pop(key)
    if value or key == "auto_restart":
        report.warning((*at, key), f"{key} is not supported because {reason[0]}", reason[1])


def _command(made: dict[str, Any], at: KeyPath, report: Report) -> None:
    """A command as a list (opencode), or as an object (Zed), as a program with arguments."""
    command = made.get("command")
    if isinstance(command, dict) and isinstance(command.get("path"), str):
        args, env = command.get("args"), command.get("env")
        made |= {"command": command["path"]} | ({"args": args} if args else {})
        if env and "env" not in made:
            made["env"] = env
        form = "Zed's"
    elif isinstance(command, list) and command and all(isinstance(one, str) for one in command):
        made["command"] = command[0]
        made["args"] = [*command[1:], *(made.get("args") or ())]
        form = "opencode's"
    else:
        return
    report.warning(
        (*at, "command"),
        f"this is {form} form; it is read, and here it is written otherwise",
        'write "command": "PROGRAM", "args": [...], "env": {...}',
    )


def _times(made: dict[str, Any], at: KeyPath, report: Report) -> None:
    for theirs, ours in _TIMES.items():
        if theirs not in made:
            continue
        value = made.pop(theirs)
        if isinstance(value, bool) or not isinstance(value, int | float):
            report.warning((*at, theirs), f"{theirs} has no effect here, as it is no number")
            continue
        if ours in made:
            continue
        is_ms = theirs.endswith("_ms") or (value >= _FROM_MS and "sec" not in theirs)
        seconds = min(value / 1000 if is_ms else float(value), _MOST_S)
        if ours == "start_timeout_s":
            seconds = min(seconds, 600.0)
        if seconds <= 0:
            report.warning((*at, theirs), f"{theirs} has no effect here, as it is no time")
            continue
        made[ours] = seconds
        if theirs != "startup_timeout_seconds":
            unit = "milliseconds" if is_ms else "seconds"
            text = f"{theirs} is read as {unit}: {ours} is {seconds:g}"
            report.warning((*at, theirs), text, f'write "{ours}": {seconds:g}')


def _switch(made: dict[str, Any], at: KeyPath, report: Report) -> None:
    for key, is_on in (("disabled", False), ("isActive", True)):
        if key not in made:
            continue
        value = made.pop(key)
        if isinstance(value, bool):
            made.setdefault("enabled", value is is_on)
        else:
            hint = 'write "enabled": true or false'
            _switch_off(made, (*at, key), f"{key} is neither true nor false", hint, report)


def _values(made: dict[str, Any]) -> None:
    """Variables, headers and arguments as texts: others write numbers, truth values and lists."""
    for key in ("env", "headers"):
        given = made.get(key)
        if isinstance(given, list) and all(isinstance(one, str) and "=" in one for one in given):
            given = dict(one.split("=", 1) for one in given)
        if isinstance(given, dict):
            made[key] = {name: _text(one) for name, one in given.items() if one is not None}
    if isinstance(made.get("args"), list):
        made["args"] = [_text(one) for one in made["args"]]


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _type(made: dict[str, Any], at: KeyPath, report: Report) -> None:
    key = "type" if "type" in made else "transport"
    kind = made.get(key)
    if key == "transport":
        made.pop("transport", None)
    if not isinstance(kind, str):
        return
    made["type"] = kind
    if kind == _UNSPOKEN:
        made["type"] = "http"
        _switch_off(
            made,
            (*at, key),
            "the transport sse is not spoken",
            "most such servers have an address for streamable HTTP: name it as url, without type",
            report,
        )
    elif kind.casefold() in _HTTP_TYPES:
        made["type"] = "http"
    elif kind.casefold() in _STDIO_TYPES:
        made["type"] = "stdio"


def _excluded(made: dict[str, Any], at: KeyPath, report: Report) -> None:
    """Tools to exclude: taken from those that are included by name; else nothing says it here."""
    for key in _EXCLUDED:
        names = made.pop(key, None)
        if not names:
            continue
        included = made.get("tools")
        is_plain = isinstance(included, list) and not any("*" in str(each) for each in included)
        if is_plain and isinstance(names, list) and isinstance(included, list):
            made["tools"] = [each for each in included if each not in names]
            continue
        hint = 'name the tools that are offered: "tools": ["NAME", "get_*"]'
        _switch_off(made, (*at, key), f"{key} is not supported", hint, report)


# -- files and keys --------------------------------------------------------------------------------

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
