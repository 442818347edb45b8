"""The names of engines' options, for code that must not import the engines."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

OF_PROGRAMS: Final = frozenset(["command", "env", "home", "memory_mb", "script"])
"""Options of every engine that runs a program."""

_ACP: Final = OF_PROGRAMS | {"start_timeout_s", "auth_method"}

OPTIONS: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "scripted": frozenset({"script", "rules"}),
        "llm": frozenset(
            [
                "base_url",
                "api_key",
                "model",
                "provider",
                "temperature",
                "max_tokens",
                "request_timeout_s",
                "request_limit",
                "tool_calls_limit",
                "total_tokens_limit",
                "ask_user",
                "pictures",
                "template_opens_thought",
                "script",
            ]
        ),
        "command": OF_PROGRAMS | {"input", "output"},
        "claude": OF_PROGRAMS
        | {"allowed_tools", "disallowed_tools", "fallback_model", "setting_sources", "api_retries"},
        "acp": _ACP,
    }
)
"""By engine; other coding agents have those of ``acp``."""

ALL: Final = frozenset().union(*OPTIONS.values())


def options_of(engine: str) -> frozenset[str]:
    """The options that an engine knows; ``auto`` may become any engine."""
    return ALL if engine == "auto" else OPTIONS.get(engine, _ACP)
