"""The command line of Claude Code: arguments, environment, session. Pure.

No prompt, no instruction and no secret is in the arguments: they go over standard input or into a
file that only its owner can read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from agentsup.engines import clean
from agentsup.engines.failures import NotConfigured
from agentsup.engines.process import ProgramOptions
from agentsup.engines.programs.presets import CLAUDE, variables
from agentsup.model.engine import EngineSpec, Segment

_ENGINE = "claude"
_MODES = frozenset({"default", "acceptEdits", "auto", "bypassPermissions", "dontAsk", "plan"})


class ClaudeOptions(ProgramOptions):
    """``command``: the program, by default ``claude``. ``allowed_tools``, ``disallowed_tools`` and
    ``fallback_model`` are passed on unchanged. ``setting_sources``: whose settings it reads:
    nobody's, or with ``home`` ``user`` those of that user. Settings of the project are never read:
    they are in the workspace, where the agent itself could extend its rights. ``api_retries``: how
    often it may ask its provider again before the turn is ended."""

    allowed_tools: tuple[str, ...] = ()
    disallowed_tools: tuple[str, ...] = ()
    fallback_model: str = ""
    setting_sources: Literal["", "user"] = ""
    api_retries: int = 3


@dataclass(frozen=True, slots=True)
class ClaudeSessionId:
    """Claude's own session: its id, and whether it should exist already."""

    session_id: str
    exists: bool

    def freeze(self) -> bytes:
        """Return it as engine state."""
        return clean.dump(_ENGINE, session=self.session_id)


def session_of(segment: Segment) -> ClaudeSessionId:
    """Return the session to resume, or a new one whose id depends on the message alone.

    So a turn that runs again after a crash finds the session of its first run.
    """
    saved = _read(segment.engine_state)
    if saved:
        return ClaudeSessionId(saved, exists=True)
    return ClaudeSessionId(fresh_id(segment), exists=segment.resume is not None)


def fresh_id(segment: Segment) -> str:
    """Return a UUID for a session that begins with this message."""
    digest = hashlib.sha256(f"{segment.session_id}\0{segment.message_id}".encode()).hexdigest()
    variant = "89ab"[int(digest[16], 16) % 4]
    return f"{digest[:8]}-{digest[8:12]}-4{digest[13:16]}-{variant}{digest[17:20]}-{digest[20:32]}"


def argv(
    spec: EngineSpec, options: ClaudeOptions, session: ClaudeSessionId, mcp_config: str = ""
) -> list[str]:
    """The argument list. ``mcp_config``: path of a file. Raises ``NotConfigured``."""
    mode = spec.permission_mode or "default"
    if mode not in _MODES:
        raise NotConfigured(
            f"permission_mode {mode!r} is unknown to claude; one of {', '.join(sorted(_MODES))}"
        )
    found = [
        *(options.command or CLAUDE.command),
        "-p",
        *("--input-format", "stream-json", "--output-format", "stream-json", "--verbose"),
        "--include-partial-messages",
        *("--permission-prompt-tool", "stdio", "--permission-mode", mode),
        f"--setting-sources={options.setting_sources}",
        "--strict-mcp-config",
        *("--resume" if session.exists else "--session-id", session.session_id),
    ]
    if mcp_config:
        found += ["--mcp-config", mcp_config]
    flags: tuple[tuple[str, Any], ...] = (
        ("--model", spec.model),
        ("--fallback-model", options.fallback_model),
        ("--effort", spec.reasoning_effort),
        ("--max-turns", spec.max_steps),
        ("--max-budget-usd", spec.max_usd),
        ("--allowed-tools", ",".join(options.allowed_tools)),
        ("--disallowed-tools", ",".join(options.disallowed_tools)),
    )
    for flag, value in flags:
        # With "=", a value can't be read as a flag, and a list can't include the next argument.
        if value:
            found.append(f"{flag}={value}")
    return found


def environment(options: ClaudeOptions, daemon: Mapping[str, str]) -> dict[str, str]:
    """Return the variables beyond the allow-list: quiet mode, the endpoint and the key.

    The daemon's key goes to the daemon's endpoint only, never to one that an agent's entry names,
    and not where the entry brings a key of its own.
    """
    given = dict(options.env)
    has_own = any(name in given for name in (*CLAUDE.env_names, *CLAUDE.keys))
    return variables(CLAUDE, {} if has_own else daemon) | given


def mcp_document(spec: EngineSpec) -> bytes:
    """The MCP servers as Claude's configuration file."""
    return json.dumps({"mcpServers": spec.mcp_servers}).encode()


def _read(state: bytes | None) -> str:
    session = (clean.load(state, _ENGINE) or {}).get("session")
    # It becomes an argument, so it must be nothing but an id.
    if isinstance(session, str) and session.replace("-", "").isalnum() and session[0] != "-":
        return session
    return ""
