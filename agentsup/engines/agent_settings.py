"""Where coding agents read settings that steer permissions or hooks, and how each is kept from those
that a program or a repository could have written. Data, pure.

A setting that lies where an agent writes is an order that it gives itself. So settings of a workspace
count nowhere: an agent is told so by its own switches, and where it has none the files are set aside
before it starts. Those of its own home are written by us before each turn, or removed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from agentsup.model.tool import OUR_MCP_SERVER

PLACE: Final = "{settings}"
"""In arguments and variables: the folder of ``shown``, which the agent can only read."""
WORKSPACE: Final = "{workspace}"


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """How one agent is kept to our settings. Paths are relative and end in no slash."""

    kind: str = ""
    """The name of its home below ``engine-home``; agents that share their sessions share it."""
    keeps: tuple[str, ...] = ()
    """What of a home is its own: moved from the home that all engines shared once, and closed to
    all others in the home of the daemon's user."""
    installed: tuple[str, ...] = ()
    """What of those it is started from."""
    shown: Mapping[str, str] = field(default_factory=dict)
    """Files for it to read, in a folder of ours beside its home."""
    args: tuple[str, ...] = ()
    """Added to its command line, whatever command an entry names."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Set unless an entry sets them."""
    private_env: Mapping[str, str] = field(default_factory=dict)
    """As ``env``, where the agent has a home of its own."""
    written: Mapping[str, str] = field(default_factory=dict)
    """Files of its own home, put there as they are before each turn."""
    unwanted: tuple[str, ...] = ()
    """What is removed from its own home before each turn."""
    project: tuple[str, ...] = ()
    """What is set aside in the workspace before each turn, as no switch keeps it from being read."""
    mode: str = ""
    """The mode of a session, over acp, in which it asks."""
    session_meta: Mapping[str, Any] = field(default_factory=dict)
    """What goes with the request for a session, over acp."""


UNKNOWN: Final = AgentSettings()
"""Of an agent that nobody knows."""


def _document(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=2) + "\n"


# Of the rules of all tiers those of an administrator count most.
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

# Variables of an `.env` of the workspace are not those of the agent either.
_NO_HOOKS = _document({"hooksConfig": {"enabled": False}, "advanced": {"ignoreLocalEnv": True}})

CLAUDE: Final = AgentSettings(
    kind="claude",
    keeps=(".claude", ".claude.json"),
    installed=(".claude/local",),
    written={".claude/settings.json": "{}\n"},
    unwanted=(".claude/settings.local.json", ".claude/plugins", ".claude/hooks"),
)
"""The engine ``claude`` says by an argument whose settings are read."""

CLAUDE_ACP: Final = AgentSettings(
    kind=CLAUDE.kind,
    keeps=CLAUDE.keeps,
    installed=CLAUDE.installed,
    written=CLAUDE.written,
    unwanted=CLAUDE.unwanted,
    # Its adapter looks for the mode in all settings by itself, those of the workspace among them.
    mode="default",
    session_meta={"claudeCode": {"options": {"settingSources": [], "strictMcpConfig": True}}},
)

GEMINI: Final = AgentSettings(
    kind="gemini",
    keeps=(".gemini",),
    shown={"policy.toml": _GEMINI_POLICY},
    args=(
        *("--admin-policy", f"{PLACE}/policy.toml"),
        *("--allowed-mcp-server-names", OUR_MCP_SERVER),
        *("--extensions", "none"),
    ),
    # An untrusted workspace would take our own tools from it as well, so its files go instead.
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
    # Its own default lets a model of its maker's judge what it does. In this mode it asks.
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
    # Our own tools ask by themselves. The title of its questions is no way to know them: of some
    # calls it is the model's words.
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
        "OPENCODE_CONFIG": f"{PLACE}/rules.json",
        "OPENCODE_PERMISSION": json.dumps(_OPENCODE_ASKS),
        "OPENCODE_PURE": "1",
    },
    private_env={"XDG_CONFIG_HOME": PLACE},
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

ALL: Final = (CLAUDE, GEMINI, CODEX, OPENCODE, GOOSE, KIMI, COPILOT, QWEN)
KINDS: Final = MappingProxyType({each.kind: each for each in ALL})
"""Of each home's agent."""


def filled(text: str, *, settings: str, workspace: str) -> str:
    """``text`` with the folders of one agent in place of their marks."""
    return text.replace(PLACE, settings).replace(WORKSPACE, workspace)
