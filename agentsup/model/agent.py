"""The declaration of an agent: the frozen ``AgentSpec``, whose fields say all about themselves.

Every field (blocks key by key) is declared once, with its type, its default, what a change of it
takes, whether an operator may override it, and what it means. The check of the files, the merge,
the diff, the JSON Schema, ``agents explain`` and the documentation are made from this. Serves
promise P4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

from agentsup.model.agent_fields import (
    FieldClass,
    FieldInfo,
    Range,
    about,
    block,
    blocks_of,
    channel,
    live,
    rebuild,
    rows_of,
)
from agentsup.model.name import name_problem
from agentsup.model.platforms import PLATFORMS
from agentsup.model.secret import Secret

OFFLINE = "scripted"
"""The engine that answers by rules, without a model."""

MAIN = "main"
"""The name of the main agent; it can't be disabled or removed."""

ANYONE = "*"
STARTED, FINISHED, FAILED = "started", "finished", "failed"
WHAT = (STARTED, FINISHED, FAILED)
"""The events of a message of the watched agent."""
_INT64 = 2**63

Engine = Literal[
    "auto",
    "scripted",
    "llm",
    "acp",
    "claude",
    "command",
    "gemini",
    "claude-acp",
    "codex",
    "opencode",
    "goose",
    "kimi",
    "copilot",
    "qwen",
]
"""Engine names that an entry may use; the registry has the same, and a test holds them equal.
``auto`` is the best one found; from ``gemini`` on, coding agents that the engine ``acp`` knows."""
EngineName = Annotated[str, Engine]
ChannelName = Annotated[str, Literal["telegram", "matrix", "web", "console"]]
PermissionMode = Annotated[
    str, Literal["default", "acceptEdits", "auto", "bypassPermissions", "dontAsk", "plan"]
]
Options = Annotated[Mapping[str, Any], "options"]
Name = Annotated[str, "name"]
NameOrRole = Annotated[str, "name_or_role"]
SecretText = Annotated[Secret, "secret"]
Password = Annotated[Secret, "password"]
Url = Annotated[str, "url"]
MatrixUser = Annotated[str, "matrix_user"]
MatrixRoom = Annotated[str, "matrix_room"]
Timezone = Annotated[str, "timezone"]
Subscription = Annotated[str, "subscription"]
Word = Annotated[str, Range(min_length=1, max_length=200)]
Words = tuple[Word, ...]
PlatformIds = tuple[Annotated[int, Range(gt=-_INT64, lt=_INT64)], ...]
Count = Annotated[int, Range(ge=1, le=1_000_000)]
Seconds = Annotated[float, Range(gt=0, le=10_000_000)]
Hours = Annotated[float, Range(gt=0, le=8760)]
Pieces = Annotated[int, Range(ge=1, le=1000)]
Money = Annotated[float, Range(ge=0, le=1_000_000_000)]
Tokens = Annotated[int, Range(ge=0, lt=_INT64)]
TokenCount = Annotated[int, Range(ge=0, le=1_000_000)]
SlotCount = Annotated[int, Range(ge=1, le=1000)]
Restarts = Annotated[int, Range(ge=0, le=1000)]


@dataclass(frozen=True, slots=True)
class MatrixIdentity:
    """The Matrix account of an agent."""

    homeserver: Url | None = channel(None, "URL of the Matrix homeserver.")
    user_id: MatrixUser | None = channel(None, "Matrix user id, @name:server.", identity=True)
    password: Password | None = channel(
        None, "Password of the account, best by reference.", identity=True, secret=True
    )
    access_token: SecretText | None = channel(
        None, "Access token instead of a password.", identity=True, secret=True
    )
    device_id: Word | None = channel(None, "Device id of the session.", identity=True)
    allowed_rooms: tuple[MatrixRoom, ...] = live(
        (), "Rooms, by their ids, in which the agent answers where others are too."
    )
    allowed_users: tuple[MatrixUser, ...] = live((), "Matrix users who may talk to the agent.")
    backlog_hours: Hours = channel(
        24.0, "Messages sent longer ago, while nobody listened, are named and not answered."
    )
    file_after_pieces: Pieces | None = live(
        None, "An answer of more Matrix messages comes as a file; without it, never."
    )
    language: Word | None = live(
        None, "Language of the people, such as de: Matrix does not tell it."
    )


@dataclass(frozen=True, slots=True)
class Slots:
    """How many sessions of an agent run at once, per lane."""

    interactive: SlotCount = live(4, "Conversations with people at once.")
    peer: SlotCount = live(2, "Requests of other agents at once.")
    background: SlotCount = live(2, "Background work at once.")


@dataclass(frozen=True, slots=True)
class Budget:
    """What an agent may spend; None means unlimited. Days and months are those of its time zone."""

    per_turn_usd: Money | None = live(None, "Most US dollars for one turn.")
    per_day_usd: Money | None = live(None, "Most US dollars in a day.")
    per_month_usd: Money | None = live(None, "Most US dollars in a month.")
    per_turn_tokens: Tokens | None = live(None, "Most tokens for one turn.")
    per_day_tokens: Tokens | None = live(None, "Most tokens in a day.")
    per_tree_usd: Money | None = live(None, "Most US dollars for all that a message sets off.")
    per_tree_tokens: Tokens | None = live(None, "Most tokens for all that a message sets off.")


@dataclass(frozen=True, slots=True)
class RestartSpec:
    """An agent's restart policy, with the field names of ``supervision.policy.RestartPolicy``."""

    base_s: Seconds = live(1.0, "First pause before a restart, in seconds.")
    factor: Annotated[float, Range(ge=1, le=100)] = live(
        2.0, "Each further pause is this many times longer."
    )
    cap_s: Seconds = live(60.0, "The longest pause, in seconds.")
    jitter: Annotated[float, Range(ge=0, le=1)] = live(
        0.5, "Share of a pause that is random, 0 to 1."
    )
    max_restarts: Restarts = live(5, "Restarts within the window; the next failure gives up.")
    window_s: Seconds = live(300.0, "Length of the window, in seconds.")
    stable_s: Seconds = live(60.0, "After this uptime, in seconds, failed starts no longer count.")
    exit42_max: Restarts = live(10, "Exits with 42 within their window; more count as crashes.")
    exit42_window_s: Seconds = live(60.0, "Length of the window for exits with 42, in seconds.")


@dataclass(frozen=True, slots=True)
class Streaming:
    """How an answer is shown in a chat while it is written, and the signs around it."""

    mode: Literal["off", "buffered", "live"] = live(
        "live",
        "Show an answer while it is written: off, buffered (by paragraphs) or live.",
        overridable=True,
    )
    drafts: bool = live(
        False,
        "In private chats of Telegram show it as a draft with a stop button instead of a message "
        "that is edited. Some clients lock the input meanwhile.",
    )
    reactions: bool = live(True, "Show by a reaction that a message was taken.")
    typing: bool = live(True, "Show that the agent is typing while it works.")
    edit_interval_s: Seconds = live(2.0, "Least seconds between two edits.")
    min_chars: Annotated[int, Range(ge=1, le=100_000)] = live(
        200, "Characters before the first part is shown."
    )
    idle_ms: Annotated[int, Range(ge=0, le=600_000)] = live(
        800, "Show a part after this pause, in milliseconds."
    )


@dataclass(frozen=True, slots=True)
class MemorySpec:
    """How much of its memory an agent gets in a turn, and how much is kept. Tokens are estimated
    from the length of a text."""

    recall_tokens: TokenCount = live(
        800, "Tokens of remembered entries before a turn, estimated; 0 for none."
    )
    recall_entries: Annotated[int, Range(ge=0, le=100)] = live(
        8, "Most remembered entries before a turn."
    )
    notes_tokens: TokenCount = live(4000, "Tokens of MEMORY.md before a turn; 0 for none.")
    max_entries: Annotated[int, Range(ge=1, le=100_000)] = live(
        2000, "Entries the agent keeps; beyond it the least valuable one goes, no pinned one."
    )
    history_tokens: Annotated[int, Range(ge=500, le=10_000_000)] = live(
        32_000, "A session whose history is longer, in estimated tokens, is summarised."
    )
    summariser: Literal["excerpts", "engine"] = live(
        "excerpts", "Who summarises: excerpts (no model) or engine (the agent's own, engine llm)."
    )
    summary_timeout_s: Annotated[float, Range(gt=0, le=300)] = live(
        20.0, "How long a turn waits for the engine's summary at most, in seconds."
    )


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """One agent as declared, after all layers were merged. Immutable; a change gives a new spec."""

    name: Name = field(
        metadata=about(FieldClass.REBUILD, "Name of the agent, a safe path segment.", identity=True)
    )
    enabled: bool = live(True, "false stops the agent and keeps its entry and its data.")
    nickname: Annotated[str, Range(min_length=1, max_length=64)] = live(
        "", "What it is called in prompts and rosters; without it, its name.", identity=True
    )
    description: str = live("", "What the agent is for; other agents read it.")
    role: Word | None = live(
        None, "Name of a role (an AGENT.md): instruction and tool ceiling.", overridable=True
    )
    prompt: str = live(
        "",
        "Lasting instructions, added to those of the role; {name}, {nickname}, {role} and"
        " {team} are filled in.",
    )
    capabilities: Words = live((), "What the agent offers to others, as short words.")
    skills: tuple[Annotated[str, Range(min_length=1, max_length=20_000)], ...] = live(
        (), "What it can: names of files skills/NAME.md in the home, or the texts themselves."
    )
    team: Name | None = live(None, "Name of the team it belongs to.")
    transports: tuple[ChannelName, ...] = channel(
        (), "Channels to start; without it, those that have an identity."
    )
    telegram_token: SecretText | None = channel(
        None,
        "Token of the agent's own Telegram bot, best as env:NAME or file:PATH.",
        identity=True,
        secret=True,
    )
    telegram_base_url: Url | None = channel(
        None, "A local Bot API server, with or without a trailing /bot."
    )
    allowed_user_ids: PlatformIds = live((), "Telegram users who may talk to the agent.")
    allowed_group_ids: PlatformIds = live((), "Telegram groups in which the agent answers.")
    group_mention_only: bool = live(True, "In groups, answer only when mentioned.")
    telegram_backlog_hours: Hours = channel(
        24.0, "Messages sent longer ago, while nobody listened, are named and not answered."
    )
    telegram_file_after_pieces: Pieces | None = live(
        None, "An answer of more Telegram messages comes as a file; without it, never."
    )
    matrix: MatrixIdentity = block(MatrixIdentity)
    engine: EngineName = rebuild(
        "auto",
        "What thinks; auto takes the best engine found: a model, else a coding agent signed in.",
        overridable=True,
    )
    provider: Word | None = rebuild(
        None, "Whose models the engine uses, such as openai.", overridable=True
    )
    model: Word | None = live(None, "Name of the model, from the next turn on.", overridable=True)
    reasoning_effort: Word | None = live(
        None, "How long the model thinks, where that can be set.", overridable=True
    )
    permission_mode: PermissionMode | None = live(
        None, "What it may do unasked: plan, default or bypassPermissions.", overridable=True
    )
    engine_options: Options = rebuild({}, "Options of the engine, such as base_url.")
    fallback_model: Word | None = live(None, "Model that answers while the primary one is out.")
    fallback_provider: Word | None = live(None, "Its provider; without it, the same.")
    fallback_engine: EngineName | None = live(None, "Its engine; without it, the same.")
    fallback_options: Options = live({}, "Its engine's options; without it, the same.")
    model_tier: Literal["primary", "fallback"] = live(
        "primary", "Which answers: primary or fallback.", overridable=True
    )
    max_steps: Count | None = live(None, "Most model steps in one turn.")
    turn_timeout_s: Seconds = live(1800.0, "Time limit of one turn, in seconds.", overridable=True)
    idle_timeout_s: Seconds = live(
        300.0,
        "How long the engine may say nothing while no call is open, in seconds.",
        overridable=True,
    )
    tools: Words | None = live(
        None, "Tools it may use: names, fs_*; without it, the harmless ones."
    )
    mcp: Annotated[Mapping[str, Any], "servers"] = live(
        {}, "Tool servers by name: command, args, env, or url and headers."
    )
    can_delegate_to: tuple[NameOrRole, ...] | None = live(
        None,
        "Agents and roles to which it may delegate; without it, it may ask all agents, and use as "
        "personas those in its own role and in none.",
    )
    subscriptions: tuple[Subscription, ...] = live(
        (), "Whose work it hears of: agents or *, each with :started, :finished, :failed or all."
    )
    slots: Slots = block(Slots)
    queue_limit: Count = live(1000, "Most messages that may wait; a full queue refuses.")
    budget: Budget = block(Budget)
    restart: RestartSpec = block(RestartSpec)
    streaming: Streaming = block(Streaming)
    memory: MemorySpec = block(MemorySpec)
    user_timezone: Timezone | None = live(
        None, "Time zone of the people, such as Europe/Zurich; else the machine's."
    )

    @property
    def is_main(self) -> bool:
        """Whether this is the main agent."""
        return self.name == MAIN

    @property
    def named_model(self) -> str:
        """The model that the files name: among the engine's options, else as the field; or empty."""
        return str(self.engine_options.get("model") or self.model or "")

    @property
    def called(self) -> str:
        """The name by which people and agents know it: its nickname, else its name."""
        return self.nickname or self.name

    @property
    def channels(self) -> tuple[str, ...]:
        """The channels to start: ``transports`` if given, else the platforms with an account."""
        if self.transports:
            return self.transports
        return tuple(each.name for each in PLATFORMS if attrgetter(each.account)(self))

    def may_delegate_to(self, name: str) -> bool:
        """Whether ``can_delegate_to`` lets this agent give work to the agent called ``name``."""
        allowed = self.can_delegate_to
        return allowed is None or name.casefold() in {each.casefold() for each in allowed}


FIELDS: Mapping[str, FieldInfo] = MappingProxyType(rows_of(AgentSpec))
"""Every field by its dotted path, blocks key by key."""

BLOCKS: Mapping[str, type] = MappingProxyType(blocks_of(AgentSpec))
"""Fields that are blocks: merged key by key, compared key by key."""


def field_info(path: str) -> FieldInfo:
    """The table's row for a dotted path.

    Below ``engine_options`` and ``mcp``, any key counts as that field. Raises ``KeyError`` for a
    path outside the table.
    """
    probe = path
    while probe not in FIELDS:
        probe, dot, _ = probe.rpartition(".")
        if not dot:
            raise KeyError(path)
    return FIELDS[probe]


@dataclass(frozen=True, slots=True)
class EventSubscription:
    """One subscription: an agent's name or ``*``, and one event or all of them."""

    name: str
    what: frozenset[str]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``name``, ``*``, ``name:failed`` and the like. Raises ``ValueError``."""
        name, colon, what = text.partition(":")
        if name != ANYONE and (problem := name_problem(name)):
            raise ValueError(f"{text!r} begins with no agent's name and not with '*': {problem}")
        if colon and what not in WHAT:
            raise ValueError(f"{text!r} ends with none of {', '.join(WHAT)}")
        return cls(name, frozenset((what,) if colon else WHAT))

    def is_of(self, name: str) -> bool:
        """Whether the subscription covers the agent called ``name``."""
        return self.name in (ANYONE, name) or self.name.casefold() == name.casefold()
