"""The settings of coding agents that control permissions or hooks, and how others are excluded.

Data, pure. An agent could give itself permissions by a setting in a place where it can write. So
settings in a workspace, which a program or a repository could have written, never count: an option
of the agent switches them off, or, if it has none, the files are renamed before it starts. Settings
in its own home are written by us before each turn, or removed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from agentsup.model.tool import OUR_MCP_SERVER

SETTINGS_FOLDER: Final = "{settings}"
"""In arguments and variables: stands for the folder of ``shown``, which the agent can only read."""
WORKSPACE: Final = "{workspace}"


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """Measures that make one agent use our settings only. Paths are relative and end in no
    slash."""

    kind: str = ""
    """The name of its home below ``engine-home``; agents that share their sessions share it."""
    keeps: tuple[str, ...] = ()
    """Its own files of a home. They are moved from the home that all engines shared once, and are
    closed to all others in the home of the daemon's user."""
    installed: tuple[str, ...] = ()
    """Those of ``keeps`` that its program is started from."""
    shown: Mapping[str, str] = field(default_factory=dict)
    """Files for it to read, in a folder of ours beside its home."""
    args: tuple[str, ...] = ()
    """Added to its command line, whatever command an entry names."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that are set unless an entry sets them."""
    private_env: Mapping[str, str] = field(default_factory=dict)
    """As ``env``, if the agent has a home of its own."""
    written: Mapping[str, str] = field(default_factory=dict)
    """Files that are written into its own home before each turn."""
    unwanted: tuple[str, ...] = ()
    """Paths that are removed from its own home before each turn."""
    project: tuple[str, ...] = ()
    """Paths of the workspace that are renamed before each turn, as no option switches them off."""
    mode: str = ""
    """The mode of a session, over acp, in which it asks for permissions."""
    session_meta: Mapping[str, Any] = field(default_factory=dict)
    """Data that is sent with the request for a session, over acp."""


UNKNOWN: Final = AgentSettings()
"""The settings of an agent that is not known."""


def _document(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=2) + "\n"


# Of all tiers, the rules of an administrator have the highest priority.
_GEMINI_POLICY = """\
[[rule]]
toolName = "*"
decision = "ask_user"
priority = 1

[[rule]]
toolName = [
  "read_file", "read_many_files", "list_directory", "glob", "grep_search", "search_file_content",
  "write_todos", "activate_skill", "get_internal_docs", "complete_task", "update_topic",
]
decision = "allow"
priority = 2
"""

# Variables of an ``.env`` file of the workspace must not count either.
_NO_HOOKS = _document({"hooksConfig": {"enabled": False}, "advanced": {"ignoreLocalEnv": True}})

CLAUDE: Final = AgentSettings(
    kind="claude",
    keeps=(".claude", ".claude.json"),
    installed=(".claude/local",),
    written={".claude/settings.json": "{}\n"},
    unwanted=(".claude/settings.local.json", ".claude/plugins", ".claude/hooks"),
)
"""For the engine ``claude`` an argument selects the settings that are read."""

CLAUDE_ACP: Final = replace(
    CLAUDE,
    # Its adapter reads the mode from all settings, also from those of the workspace.
    mode="default",
    session_meta={"claudeCode": {"options": {"settingSources": [], "strictMcpConfig": True}}},
)

GEMINI: Final = AgentSettings(
    kind="gemini",
    keeps=(".gemini",),
    shown={"policy.toml": _GEMINI_POLICY},
    args=(
        *("--admin-policy", f"{SETTINGS_FOLDER}/policy.toml"),
        *("--allowed-mcp-server-names", OUR_MCP_SERVER),
        *("--extensions", "none"),
    ),
    # In an untrusted workspace it could not use our own tools either, so files are renamed instead.
    env={"GEMINI_CLI_TRUST_WORKSPACE": "true", "NODE_OPTIONS": "", "BASH_ENV": ""},
    written={".gemini/settings.json": _NO_HOOKS},
    unwanted=(
        ".gemini/policies",
        ".gemini/extensions",
        ".gemini/hooks",
        ".gemini/agents",
        ".gemini/.env",
        ".env",
    ),
    project=(
        ".gemini/settings.json",
        ".gemini/.env",
        ".gemini/extensions",
        ".gemini/agents",
        ".gemini/hooks",
    ),
    mode="default",
)

CODEX: Final = AgentSettings(
    kind="codex",
    keeps=(".codex",),
    # By default a model of its maker decides about its calls. In this mode it asks.
    env={"INITIAL_AGENT_MODE": "read-only"},
    written={".codex/config.toml": ""},
    unwanted=(
        ".codex/hooks.json",
        ".codex/rules",
        ".codex/.env",
        ".codex/plugins",
        ".codex/agents",
    ),
    # Its adapter trusts each workspace, whatever is set.
    project=(
        ".codex/config.toml",
        ".codex/hooks.json",
        ".codex/rules",
        ".codex/agents",
    ),
    mode="read-only",
)

_OPENCODE_ASKS = {
    "*": "ask",
    **dict.fromkeys(
        ("read", "glob", "grep", "list", "lsp", "skill", "todoread", "todowrite"), "allow"
    ),
    # Our own tools ask by themselves. They can't be recognised by the title of a request: some
    # titles are the model's words.
    f"{OUR_MCP_SERVER}_*": "allow",
}

OPENCODE: Final = AgentSettings(
    kind="opencode",
    keeps=(
        ".config/opencode",
        ".local/share/opencode",
        ".local/state/opencode",
        ".cache/opencode",
        ".opencode",
    ),
    installed=(".opencode/bin",),
    shown={
        "opencode/opencode.json": "{}\n",
        "rules.json": _document({"instructions": [f"{WORKSPACE}/AGENTS.md"]}),
    },
    env={
        "OPENCODE_DISABLE_PROJECT_CONFIG": "1",
        "OPENCODE_CONFIG": f"{SETTINGS_FOLDER}/rules.json",
        "OPENCODE_PERMISSION": json.dumps(_OPENCODE_ASKS),
        "OPENCODE_PURE": "1",
    },
    private_env={"XDG_CONFIG_HOME": SETTINGS_FOLDER},
    unwanted=(".opencode", ".config/opencode"),
)

GOOSE: Final = AgentSettings(
    kind="goose",
    keeps=(".config/goose", ".local/share/goose", ".local/state/goose"),
    env={"GOOSE_MODE": "approve"},
    unwanted=(".config/goose/permission.yaml", ".config/goose/permissions"),
)

KIMI: Final = AgentSettings(kind="kimi", keeps=(".kimi",), unwanted=(".kimi/mcp.json",))

COPILOT: Final = AgentSettings(
    kind="copilot",
    keeps=(".copilot",),
    unwanted=(".copilot/mcp-config.json", ".copilot/hooks", ".copilot/permissions-config.json"),
    project=(".mcp.json", ".github/hooks", ".github/copilot/settings.json", ".copilot"),
)

QWEN: Final = AgentSettings(
    kind="qwen",
    keeps=(".qwen",),
    written={".qwen/settings.json": _NO_HOOKS},
    unwanted=(".qwen/extensions", ".qwen/hooks", ".qwen/.env", ".env"),
    project=(".qwen/settings.json", ".qwen/.env", ".qwen/extensions", ".qwen/hooks", ".env"),
)

MOVED_BY: Final = ("CODEX_HOME", "CLAUDE_CONFIG_DIR", "OPENCODE_CONFIG", "OPENCODE_CONFIG_DIR")
"""Variables that name another directory for an agent's settings or all its files. They are not
passed on from the daemon's environment, as our settings would not count there."""

ALL: Final = (CLAUDE, GEMINI, CODEX, OPENCODE, GOOSE, KIMI, COPILOT, QWEN)
KINDS: Final = MappingProxyType({each.kind: each for each in ALL})
"""The settings of an agent by the name of its home."""


def filled(text: str, *, settings: str, workspace: str) -> str:
    """Return ``text`` with ``PLACE`` and ``WORKSPACE`` replaced by the folders of one agent."""
    return text.replace(SETTINGS_FOLDER, settings).replace(WORKSPACE, workspace)
