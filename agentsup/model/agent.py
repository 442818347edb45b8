"""What an agent is, as declared: the frozen `AgentSpec` and the one table of its fields.

`FIELDS` says for every field (blocks key by key) what a change of it takes, whether the operator
may override it from chat, and what it means. The diff, the JSON Schema, `agents explain` and the
documentation all read this table; a test holds it equal to the dataclasses. Serves promise P4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Literal

from agentsup.model.secret import REDACTED, Secret

__all__ = [
    "BLOCKS",
    "ENGINES",
    "FIELDS",
    "MAIN",
    "REDACTED",
    "TRANSPORTS",
    "AgentSpec",
    "Budget",
    "FieldClass",
    "FieldInfo",
    "MatrixIdentity",
    "MemorySpec",
    "RestartSpec",
    "Secret",
    "Slots",
    "Streaming",
    "field_info",
]

OFFLINE = "scripted"
"""The engine that answers by rules, without a model."""

MAIN = "main"
"""The name of the main agent; it can't be disabled or removed."""

ENGINES = (
    *("auto", "scripted", "llm", "acp", "claude", "command"),
    *("gemini", "claude-acp", "codex", "opencode", "goose", "kimi", "copilot", "qwen"),
)
"""Engine names an entry may use; `auto` is the best one found, the second line is of coding agents
that the engine `acp` knows by name."""

TRANSPORTS = ("telegram", "matrix", "web", "console")
"""Channel kinds an entry may name."""


@dataclass(frozen=True, slots=True)
class MatrixIdentity:
    """The Matrix account of an agent."""

    homeserver: str | None = None
    user_id: str | None = None
    password: Secret | None = None
    access_token: Secret | None = None
    device_id: str | None = None
    allowed_rooms: tuple[str, ...] = ()
    allowed_users: tuple[str, ...] = ()
    backlog_hours: float = 24.0
    file_after_pieces: int | None = None
    language: str | None = None

    @property
    def is_usable(self) -> bool:
        """Whether there is an account, its homeserver, and something to sign in with."""
        has_secret = self.access_token is not None or self.password is not None
        return bool(self.homeserver and self.user_id) and has_secret


@dataclass(frozen=True, slots=True)
class Slots:
    """How many sessions of an agent run at once, per lane."""

    interactive: int = 4
    peer: int = 2
    background: int = 2


@dataclass(frozen=True, slots=True)
class Budget:
    """What an agent may spend; None means unlimited. Days and months are those of its time zone."""

    per_turn_usd: float | None = None
    per_day_usd: float | None = None
    per_month_usd: float | None = None
    per_turn_tokens: int | None = None
    per_day_tokens: int | None = None
    per_tree_usd: float | None = None
    per_tree_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class RestartSpec:
    """The restart policy of an agent, with the field names of `supervision.policy.RestartPolicy`."""

    base_s: float = 1.0
    factor: float = 2.0
    cap_s: float = 60.0
    jitter: float = 0.5
    max_restarts: int = 5
    window_s: float = 300.0
    stable_s: float = 60.0
    exit42_max: int = 10
    exit42_window_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Streaming:
    """How an answer appears in a chat while it is written, and the signs around it."""

    mode: Literal["off", "buffered", "live"] = "live"
    reactions: bool = True
    typing: bool = True
    edit_interval_s: float = 2.0
    min_chars: int = 200
    idle_ms: int = 800

    @property
    def enabled(self) -> bool:
        """Whether an answer is shown before it is whole."""
        return self.mode != "off"


@dataclass(frozen=True, slots=True)
class MemorySpec:
    """What an agent is given of its memory in a turn, and how much it keeps. Tokens are estimated
    from the length of a text."""

    recall_tokens: int = 800
    recall_entries: int = 8
    notes_tokens: int = 4000
    max_entries: int = 2000
    history_tokens: int = 32_000
    summariser: Literal["excerpts", "engine"] = "excerpts"
    summary_timeout_s: float = 20.0


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """One agent as declared after all layers were merged. Immutable; a change is a new spec."""

    name: str
    enabled: bool = True
    nickname: str = ""
    description: str = ""
    role: str | None = None
    prompt: str = ""
    capabilities: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    team: str | None = None
    transports: tuple[str, ...] = ()
    telegram_token: Secret | None = None
    telegram_base_url: str | None = None
    allowed_user_ids: tuple[int, ...] = ()
    allowed_group_ids: tuple[int, ...] = ()
    group_mention_only: bool = True
    telegram_backlog_hours: float = 24.0
    telegram_file_after_pieces: int | None = None
    matrix: MatrixIdentity = field(default_factory=MatrixIdentity)
    engine: str = "auto"
    provider: str | None = None
    model: str | None = None
    reasoning_effort: str | None = None
    permission_mode: str | None = None
    engine_options: Mapping[str, Any] = field(default_factory=dict)
    fallback_model: str | None = None
    fallback_provider: str | None = None
    fallback_engine: str | None = None
    fallback_options: Mapping[str, Any] = field(default_factory=dict)
    model_tier: Literal["primary", "fallback"] = "primary"
    max_steps: int | None = None
    turn_timeout_s: float = 1800.0
    idle_timeout_s: float = 300.0
    tools: tuple[str, ...] | None = None
    mcp: Mapping[str, Any] = field(default_factory=dict)
    can_delegate_to: tuple[str, ...] | None = None
    subscriptions: tuple[str, ...] = ()
    slots: Slots = field(default_factory=Slots)
    queue_limit: int = 1000
    budget: Budget = field(default_factory=Budget)
    restart: RestartSpec = field(default_factory=RestartSpec)
    streaming: Streaming = field(default_factory=Streaming)
    memory: MemorySpec = field(default_factory=MemorySpec)
    user_timezone: str | None = None

    @property
    def is_main(self) -> bool:
        """Whether this is the main agent."""
        return self.name == MAIN

    @property
    def called(self) -> str:
        """What it is called among people and agents: its nickname, else its name."""
        return self.nickname or self.name

    @property
    def channels(self) -> tuple[str, ...]:
        """The outside channels to start: `transports` where given, else those with an identity."""
        if self.transports:
            return self.transports
        found = (("telegram", self.telegram_token), ("matrix", self.matrix.user_id))
        return tuple(kind for kind, identity in found if identity)

    def may_delegate_to(self, name: str) -> bool:
        """Whether `can_delegate_to` lets this agent give work to the agent called `name`."""
        allowed = self.can_delegate_to
        return allowed is None or name.casefold() in {each.casefold() for each in allowed}


class FieldClass(StrEnum):
    """What it takes until a changed field is in effect."""

    LIVE = "live"
    """At once, or from the next turn; nothing is interrupted."""
    CHANNEL = "channel"
    """The agent's channel is connected anew; the agent and its work go on."""
    REBUILD = "rebuild"
    """The agent is drained and built anew; other agents are untouched."""
    PROCESS = "process"
    """The daemon must be restarted."""


@dataclass(frozen=True, slots=True)
class FieldInfo:
    """One row of the field table."""

    cls: FieldClass
    doc: str
    overridable: bool = False
    """Whether the operator may override it from chat, CLI or API."""
    identity: bool = False
    """Belongs to one agent alone, so it can't stand in `[agent_defaults]`."""
    secret: bool = False


_LIVE, _CHANNEL, _REBUILD = FieldClass.LIVE, FieldClass.CHANNEL, FieldClass.REBUILD


def _restart_rows() -> dict[str, FieldInfo]:
    docs = {
        "base_s": "First pause before a restart, in seconds.",
        "factor": "Each further pause is this many times longer.",
        "cap_s": "The longest pause, in seconds.",
        "jitter": "Share of a pause that is random, 0 to 1.",
        "max_restarts": "Restarts within the window; the next failure gives up.",
        "window_s": "Length of the window, in seconds.",
        "stable_s": "After this uptime, in seconds, failed starts no longer count.",
        "exit42_max": "Exits with 42 within their window; more count as crashes.",
        "exit42_window_s": "Length of the window for exits with 42, in seconds.",
    }
    return {f"restart.{key}": FieldInfo(_LIVE, doc) for key, doc in docs.items()}


FIELDS: Mapping[str, FieldInfo] = MappingProxyType(
    {
        "name": FieldInfo(_REBUILD, "Name of the agent, a safe path segment.", identity=True),
        "enabled": FieldInfo(_LIVE, "false stops the agent and keeps its entry and its data."),
        "nickname": FieldInfo(
            _LIVE, "What it is called in prompts and rosters; without it, its name.", identity=True
        ),
        "description": FieldInfo(_LIVE, "What the agent is for; other agents read it."),
        "role": FieldInfo(
            _LIVE, "Name of a role (an AGENT.md): instruction and tool ceiling.", overridable=True
        ),
        "prompt": FieldInfo(
            _LIVE,
            "Standing instructions, added to those of the role; {name}, {nickname}, {role} and"
            " {team} are filled in.",
        ),
        "capabilities": FieldInfo(_LIVE, "What the agent offers to others, as short words."),
        "skills": FieldInfo(
            _LIVE,
            "What it can: names of files skills/NAME.md in the home, or the texts themselves.",
        ),
        "team": FieldInfo(_LIVE, "Name of the team it belongs to."),
        "transports": FieldInfo(
            _CHANNEL, "Channels to start; without it, those that have an identity."
        ),
        "telegram_token": FieldInfo(
            _CHANNEL,
            "Token of the agent's own Telegram bot, best as env:NAME or file:PATH.",
            identity=True,
            secret=True,
        ),
        "telegram_base_url": FieldInfo(
            _CHANNEL, "A local Bot API server, with or without a trailing /bot."
        ),
        "allowed_user_ids": FieldInfo(_LIVE, "Telegram users who may talk to the agent."),
        "allowed_group_ids": FieldInfo(_LIVE, "Telegram groups in which the agent answers."),
        "group_mention_only": FieldInfo(_LIVE, "In groups, answer only when mentioned."),
        "telegram_backlog_hours": FieldInfo(
            _CHANNEL, "Messages sent longer ago, while nobody listened, are named and not answered."
        ),
        "telegram_file_after_pieces": FieldInfo(
            _LIVE, "An answer of more Telegram messages comes as a file; without it, never."
        ),
        "matrix.homeserver": FieldInfo(_CHANNEL, "URL of the Matrix homeserver."),
        "matrix.user_id": FieldInfo(_CHANNEL, "Matrix user id, @name:server.", identity=True),
        "matrix.password": FieldInfo(
            _CHANNEL, "Password of the account, best by reference.", identity=True, secret=True
        ),
        "matrix.access_token": FieldInfo(
            _CHANNEL, "Access token instead of a password.", identity=True, secret=True
        ),
        "matrix.device_id": FieldInfo(_CHANNEL, "Device id of the session.", identity=True),
        "matrix.allowed_rooms": FieldInfo(
            _LIVE, "Rooms, by their ids, in which the agent answers where others are too."
        ),
        "matrix.allowed_users": FieldInfo(_LIVE, "Matrix users who may talk to the agent."),
        "matrix.backlog_hours": FieldInfo(
            _CHANNEL, "Messages sent longer ago, while nobody listened, are named and not answered."
        ),
        "matrix.file_after_pieces": FieldInfo(
            _LIVE, "An answer of more Matrix messages comes as a file; without it, never."
        ),
        "matrix.language": FieldInfo(
            _LIVE, "Language of the people, such as de: Matrix does not tell it."
        ),
        "engine": FieldInfo(
            _REBUILD,
            "What thinks; auto takes the best engine found: a model, else a coding agent signed in.",
            overridable=True,
        ),
        "provider": FieldInfo(
            _REBUILD, "Whose models the engine uses, such as openai.", overridable=True
        ),
        "model": FieldInfo(_LIVE, "Name of the model, from the next turn on.", overridable=True),
        "reasoning_effort": FieldInfo(
            _LIVE, "How long the model thinks, where it can be told.", overridable=True
        ),
        "permission_mode": FieldInfo(
            _LIVE, "What it may do unasked: plan, default or bypassPermissions.", overridable=True
        ),
        "engine_options": FieldInfo(_REBUILD, "Options of the engine, such as base_url."),
        "fallback_model": FieldInfo(_LIVE, "Model that answers while the primary one is out."),
        "fallback_provider": FieldInfo(_LIVE, "Its provider; without it, the same."),
        "fallback_engine": FieldInfo(_LIVE, "Its engine; without it, the same."),
        "fallback_options": FieldInfo(_LIVE, "Its engine's options; without it, the same."),
        "model_tier": FieldInfo(_LIVE, "Which answers: primary or fallback.", overridable=True),
        "max_steps": FieldInfo(_LIVE, "Most model steps in one turn."),
        "turn_timeout_s": FieldInfo(_LIVE, "Time limit of one turn, in seconds.", overridable=True),
        "idle_timeout_s": FieldInfo(
            _LIVE,
            "How long the engine may say nothing while no call is open, in seconds.",
            overridable=True,
        ),
        "tools": FieldInfo(_LIVE, "Tools it may use: names, fs_*; without it, the harmless ones."),
        "mcp": FieldInfo(_LIVE, "Tool servers by name: command, args, env, or url and headers."),
        "can_delegate_to": FieldInfo(
            _LIVE,
            "Agents it may give work to, and roles; without it, all agents, but in another's place "
            "only within its own role.",
        ),
        "subscriptions": FieldInfo(
            _LIVE,
            "Whose work it hears of: agents or *, each with :started, :finished, :failed or all.",
        ),
        "slots.interactive": FieldInfo(_LIVE, "Conversations with people at once."),
        "slots.peer": FieldInfo(_LIVE, "Requests of other agents at once."),
        "slots.background": FieldInfo(_LIVE, "Background work at once."),
        "queue_limit": FieldInfo(_LIVE, "Most messages that may wait; a full queue refuses."),
        "budget.per_turn_usd": FieldInfo(_LIVE, "Most US dollars for one turn."),
        "budget.per_day_usd": FieldInfo(_LIVE, "Most US dollars in a day."),
        "budget.per_month_usd": FieldInfo(_LIVE, "Most US dollars in a month."),
        "budget.per_turn_tokens": FieldInfo(_LIVE, "Most tokens for one turn."),
        "budget.per_day_tokens": FieldInfo(_LIVE, "Most tokens in a day."),
        "budget.per_tree_usd": FieldInfo(_LIVE, "Most US dollars for all that a message sets off."),
        "budget.per_tree_tokens": FieldInfo(_LIVE, "Most tokens for all that a message sets off."),
        **_restart_rows(),
        "streaming.mode": FieldInfo(
            _LIVE,
            "Show an answer while it is written: off, buffered (by paragraphs) or live.",
            overridable=True,
        ),
        "streaming.reactions": FieldInfo(_LIVE, "Show by a reaction that a message was taken."),
        "streaming.typing": FieldInfo(_LIVE, "Show that the agent is typing while it works."),
        "streaming.edit_interval_s": FieldInfo(_LIVE, "Least seconds between two edits."),
        "streaming.min_chars": FieldInfo(_LIVE, "Characters before the first part is shown."),
        "streaming.idle_ms": FieldInfo(_LIVE, "Show a part after this pause, in milliseconds."),
        "memory.recall_tokens": FieldInfo(
            _LIVE, "Tokens of remembered entries before a turn, estimated; 0 for none."
        ),
        "memory.recall_entries": FieldInfo(_LIVE, "Most remembered entries before a turn."),
        "memory.notes_tokens": FieldInfo(_LIVE, "Tokens of MEMORY.md before a turn; 0 for none."),
        "memory.max_entries": FieldInfo(
            _LIVE, "Entries the agent keeps; beyond it the least valuable one goes, no pinned one."
        ),
        "memory.history_tokens": FieldInfo(
            _LIVE, "A session whose history is longer, in estimated tokens, is summarised."
        ),
        "memory.summariser": FieldInfo(
            _LIVE, "Who summarises: excerpts (no model) or engine (the agent's own, engine llm)."
        ),
        "memory.summary_timeout_s": FieldInfo(
            _LIVE, "How long a turn waits for the engine's summary at most, in seconds."
        ),
        "user_timezone": FieldInfo(
            _LIVE, "Time zone of the people, such as Europe/Zurich; else the machine's."
        ),
    }
)

BLOCKS: Mapping[str, type] = MappingProxyType(
    {
        "matrix": MatrixIdentity,
        "slots": Slots,
        "budget": Budget,
        "restart": RestartSpec,
        "streaming": Streaming,
        "memory": MemorySpec,
    }
)
"""Fields that are blocks: merged key by key, compared key by key."""


def field_info(path: str) -> FieldInfo:
    """The table's row for a dotted path; below `engine_options` and `mcp` any key counts as that field.

    Raises `KeyError` for a path outside the table.
    """
    probe = path
    while probe not in FIELDS:
        probe, dot, _ = probe.rpartition(".")
        if not dot:
            raise KeyError(path)
    return FIELDS[probe]
