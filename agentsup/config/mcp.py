"""``mcp`` of an entry: the tool servers of an agent, as declared and as used.

The forms of other programs (``mcpServers``, ``disabled``, a list under ``servers``) are accepted
too. Values of ``env``, ``headers`` and ``url`` may be references; they are resolved when a server
is opened, and never appear in an argument list.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from agentsup.config import secrets
from agentsup.config.findings import KeyPath, Report, is_secret_name
from agentsup.config.foreign import (
    as_words,
    is_bare,
    placeholder_in,
    translate_server,
    usable_name,
)
from agentsup.model.agent import Word
from agentsup.model.agent_fields import Range
from agentsup.model.errors import ConfigError
from agentsup.model.secret import Secret
from agentsup.model.tool import OUR_MCP_SERVER

MAX_SERVERS = 16
"""Of one agent. Each server is a program or a connection that stays open."""

MISPLACED = ("headers", "args", "env", "cwd")
"""Keys that mean nothing for the other kind of server."""

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]|_(?=[A-Za-z0-9-])){0,31}", re.ASCII)
_SCHEMED = re.compile(
    r"(?P<scheme>Bearer|Basic|Token|ApiKey) (?P<secret>\S.*)", re.ASCII | re.IGNORECASE
)
_OPTION = re.compile(r"--?(?P<name>[A-Za-z][\w-]*)(?P<value>=.+)?", re.ASCII)


def name_problem(name: str) -> str | None:
    """Why a server can't have this name, or None."""
    if not _NAME.fullmatch(name):
        return (
            "a server's name has at most 32 letters, digits, '-' and single '_' between them; its "
            "tools are called mcp:NAME/tool"
        )
    if name.casefold() == OUR_MCP_SERVER:
        return f"{OUR_MCP_SERVER} is the server of the daemon itself; choose another name"
    return None


# -- forms of other programs -----------------------------------------------------------------------


def translate_servers(
    values: dict[str, Any], moved: dict[KeyPath, KeyPath], at: KeyPath, report: Report
) -> None:
    """Convert ``mcp`` of an entry to servers by name. Changes ``values`` and ``moved``."""
    given = _by_name(values.get("mcp"), moved.get(("mcp",), ("mcp",)), moved)
    if not isinstance(given, dict):
        return  # its wrong type is reported where the entry is checked
    for wrapper in ("mcpServers", "servers"):
        if wrapper in given and not _is_server(given[wrapper]):
            inner, path = given[wrapper], (*moved.get(("mcp",), ("mcp",)), wrapper)
            given = {} if given.get("enabled") is False else _by_name(inner, path, moved)
            moved["mcp",] = path
            break
    else:
        if isinstance(given.get("enabled"), bool):
            given = {key: value for key, value in given.items() if key != "enabled"}
            if not given:
                hint = 'write "mcp": {"NAME": {"command": "..."}}'
                report.warning((*at, "mcp"), "mcp names no server", hint)
    if not isinstance(given, dict):
        values["mcp"] = given
        return
    written = moved.get(("mcp",), ("mcp",))
    made: dict[str, Any] = {}
    for name, server in given.items():
        where = (*at, *moved.get(("mcp", name), (*written, name)))
        if server is None:
            continue
        refusal = name_problem(name)
        if refusal is not None:
            proposed = usable_name(name, name_problem)
            remedy = f"name it {proposed!r}" if proposed and proposed not in given else None
            report.warning(where, f"{refusal}; this server is left out", remedy)
            continue
        made[name] = translate_server(server, where, report)
    values["mcp"] = made


def _is_server(value: object) -> bool:
    return isinstance(value, dict) and any(
        isinstance(value.get(k), str) for k in ("command", "url")
    )


def _by_name(listed: Any, path: KeyPath, moved: dict[KeyPath, KeyPath]) -> Any:
    """Servers of a list by their ``name``; anything else unchanged."""
    if not isinstance(listed, list):
        return listed
    found: dict[str, Any] = {}
    for index, one in enumerate(listed):
        if not isinstance(one, dict) or not isinstance(one.get("name"), str):
            return listed
        found[one["name"]] = {key: value for key, value in one.items() if key != "name"}
        moved["mcp", one["name"]] = (*path, index)
    return found


# -- declared servers ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class McpServer:
    """One server as declared. Secrets are unresolved.

    The keys of its block in a file are made from this; the kinds of values are in ``config.entry``.
    """

    name: str
    enabled: bool = True
    command: Annotated[str, "program"] = ""
    args: Annotated[tuple[str, ...], "arguments"] = ()
    env: Annotated[Mapping[str, Any], "values"] = field(default_factory=dict)
    cwd: Annotated[str, "folder"] = ""
    """The folder in which its program works; empty: the workspace."""
    url: Annotated[Any, "server_url"] = None
    headers: Annotated[Mapping[str, Any], "values"] = field(default_factory=dict)
    tools: tuple[Word, ...] | None = None
    """Patterns of the tools that are accepted; None: all."""
    safety: Annotated[Mapping[str, str], "safety"] = field(default_factory=dict)
    """The operator's safety class of tools, by pattern; the first match counts."""
    trust_hints: bool = False
    """Whether to trust the server's hints about its tools."""
    call_timeout_s: Annotated[float, Range(gt=0, le=3600)] = 120.0
    start_timeout_s: Annotated[float, Range(gt=0, le=600)] = 60.0

    @property
    def kind(self) -> str:
        """The transport: stdio or http."""
        return "http" if self.url is not None else "stdio"

    @property
    def shown(self) -> str:
        """Its program or address for display, without arguments and anything that may be secret."""
        if self.url is None:
            return self.command
        if isinstance(self.url, Secret):
            return self.url.shown
        parts = urlsplit(str(self.url))
        host = parts.netloc.rpartition("@")[2]
        return f"{parts.scheme}://{host}{parts.path}"

    @property
    def remedy(self) -> str:
        """The remedy if its program is not found."""
        if is_bare(self.command):
            return f"a command is one program: {as_words(self.command)}"
        return f"install it, or name its full path as the command of the server {self.name}"


@dataclass(frozen=True, slots=True)
class OpenedServer:
    """The values for opening a server, with secrets resolved."""

    env: Mapping[str, str] = field(repr=False)
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)
    """Texts that must not be quoted from its error output."""


def servers_of(declared: Mapping[str, Any]) -> dict[str, McpServer]:
    """The servers of a spec's ``mcp``, which must be checked already."""
    found = {}
    for name, value in declared.items():
        given = {key: each for key, each in value.items() if key not in ("type", "tools", "args")}
        tools, args = value.get("tools"), value.get("args") or ()
        found[name] = McpServer(
            name, args=tuple(args), tools=None if tools is None else tuple(tools), **given
        )
    return found


def protect_servers(declared: Mapping[str, Any]) -> dict[str, Any]:
    """The same with possible secrets wrapped: references, and values with secret-sounding names."""
    return {
        name: {key: _protected(key, value) for key, value in server.items()}
        for name, server in declared.items()
    }


def _protected(key: str, value: Any) -> Any:
    if key == "url" and isinstance(value, str):
        parts = urlsplit(value)
        is_secret = value.startswith(("env:", "file:")) or "@" in parts.netloc or parts.query
        return Secret(value) if is_secret else value
    if key in ("env", "headers") and isinstance(value, Mapping):
        return {
            name: Secret(text) if is_secret_name(name) or _reference_in(text) else text
            for name, text in value.items()
        }
    return value


def _reference_in(text: str) -> bool:
    found = _SCHEMED.fullmatch(text)
    return found is not None or text.startswith(("env:", "file:"))


def resolved(server: McpServer, *, base: Path, environ: Mapping[str, str]) -> OpenedServer:
    """Resolve the references of a server; blocks on the disk for ``file:``.

    Raises ``ConfigError`` that names the reference, never the value.
    """
    found: list[str] = []

    def plain(value: Any) -> str:
        if not isinstance(value, Secret):
            return str(value)
        scheme, secret = _split(value)
        text = secrets.resolve(secret, base=base, environ=environ).reveal()
        found.append(text)
        return f"{scheme}{text}"

    env = {name: plain(value) for name, value in server.env.items()}
    headers = {name: plain(value) for name, value in server.headers.items()}
    url = "" if server.url is None else plain(server.url)
    return OpenedServer(env, url, headers, tuple(found))


def _split(value: Secret) -> tuple[str, Secret]:
    """Split ``Bearer env:NAME`` into its first word with the blank, and the secret."""
    found = _SCHEMED.fullmatch(value.written)
    return (f"{found['scheme']} ", Secret(found["secret"])) if found else ("", value)


def secrets_of(declared: Mapping[str, Any]) -> Iterator[Secret]:
    """Every secret of a spec's ``mcp``, for redaction by value."""
    for secret in secrets.secret_values(declared):
        yield _split(secret)[1]


# -- problems --------------------------------------------------------------------------------------


def problems(
    declared: Mapping[str, Any], *, base: Path, environ: Mapping[str, str]
) -> Iterable[tuple[KeyPath, str, str | None, bool]]:
    """Problems in the merged servers of one agent: key path, message, hint, and whether it is an
    error. Resolves the references."""
    if len(declared) > MAX_SERVERS:
        yield ("mcp",), f"an agent has at most {MAX_SERVERS} servers", None, True
    for name, value in declared.items():
        yield from server_problems(name, value)
    for name, server in servers_of(declared).items():
        if not server.enabled:
            continue
        try:
            resolved(server, base=base, environ=environ)
        except ConfigError as error:
            yield ("mcp", name), error.message, error.hint, False
        for index, argument in enumerate(server.args):
            if _holds_secret(argument, server.args[index + 1 : index + 2]):
                problem = "every process of the machine can read a program's arguments"
                yield ("mcp", name, "args", index), problem, "give secrets in env", False
        for where, value in _texts_of(server):
            if placeholder_in(value.written if isinstance(value, Secret) else str(value)):
                problem = "this is given to the server as it stands: no variable is put in"
                hint = "write env:NAME for a variable, in env, headers or url"
                yield ("mcp", name, *where), problem, hint, False
        if is_bare(server.command):
            problem = "a command is the name of one program, and this one has arguments"
            yield ("mcp", name, "command"), problem, as_words(server.command), False


def _texts_of(server: McpServer) -> Iterator[tuple[KeyPath, Any]]:
    """The values that other programs fill with variables, by their place."""
    for index, argument in enumerate(server.args):
        yield ("args", index), argument
    for block in ("env", "headers"):
        for key, text in getattr(server, block).items():
            yield (block, key), text
    if server.cwd:
        yield ("cwd",), server.cwd
    if server.url is not None:
        yield ("url",), server.url


def server_problems(
    name: str, value: Mapping[str, Any]
) -> Iterable[tuple[KeyPath, str, str | None, bool]]:
    """The problems of one server that concern several of its keys."""
    at: KeyPath = ("mcp", name)
    if value.get("enabled") is False:
        return
    has_command, has_url = bool(value.get("command")), value.get("url") is not None
    if has_command == has_url:
        both = "both a command and a url" if has_command else "neither a command nor a url"
        yield at, f"the server {name} has {both}", "a server is a program or an address", True
        return
    kind = "stdio" if has_command else "http"
    if value.get("type") not in (None, kind):
        yield (*at, "type"), f"the server {name} is of type {kind}", "leave type out", True
    for key in MISPLACED[:1] if has_command else MISPLACED[1:]:
        if value.get(key):
            problem = f"{key} is nothing for a server of type {kind}"
            hint = "headers belong to a url, args, env and cwd to a command"
            yield (*at, key), problem, hint, True


def _holds_secret(argument: str, following: tuple[str, ...]) -> bool:
    found = _OPTION.fullmatch(argument)
    if found is None or not is_secret_name(found["name"]):
        return False
    return found["value"] is not None or bool(following and not following[0].startswith("-"))
