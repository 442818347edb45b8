"""The shape of one agent's declaration: an entry of agents.json, `[main]`, `[agent_defaults]`.

All keys are optional here; which layer gives which value is `merge`'s business. Types are strict:
a text is no number and a number is no truth value. Defaults live in `model.agent` alone.
"""

from __future__ import annotations

import math
import re
import zoneinfo
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from agentsup.config.findings import KeyPath, did_you_mean, kind_of
from agentsup.config.mcp import name_problem as server_name_problem
from agentsup.config.sygen import ENTRY_KEYS, mode_of
from agentsup.model.name import BUILTIN_ROLES, name_problem
from agentsup.model.watch import Watch

MAX_OPTION_DEPTH = 16
"""How deep engine options may be nested."""

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_MATRIX_USER = re.compile(r"@[^:\s]+:[^\s]+")
_MATRIX_ROOM = re.compile(r"![^\s/]+")
_INT64 = 2**63


def _name(text: str) -> str:
    if problem := name_problem(text):
        raise ValueError(problem)
    return text


def _name_or_role(text: str) -> str:
    return text if text.casefold() in BUILTIN_ROLES else _name(text)


def _secret(text: str) -> str:
    kind, colon, rest = text.partition(":")
    if colon and kind == "env" and not _ENV_NAME.fullmatch(rest):
        raise ValueError("env: is followed by the name of an environment variable")
    if colon and kind == "file" and not rest.strip():
        raise ValueError("file: is followed by the path of a file")
    if kind != "file" and (not text or not text.isprintable() or " " in text):
        raise ValueError("a secret is one word, env:NAME or file:PATH")
    return text


def _password(text: str) -> str:
    return text if text and not text.startswith(("env:", "file:")) else _secret(text)


def _url(text: str) -> str:
    if not re.fullmatch(r"https?://[^\s/]+\S*", text):
        raise ValueError("a URL starts with http:// or https:// and names a host")
    return text


def _matrix_user(text: str) -> str:
    if not _MATRIX_USER.fullmatch(text):
        raise ValueError("a Matrix user id looks like @name:server")
    return text


def _matrix_room(text: str) -> str:
    if text.startswith("#"):
        raise ValueError(
            "an alias can be given to another room; name the room by its id, which begins with ! "
            "(Element: room settings, Advanced)"
        )
    if not _MATRIX_ROOM.fullmatch(text):
        raise ValueError("a Matrix room id looks like !id:server")
    return text


def _server_name(text: str) -> str:
    if problem := server_name_problem(text):
        raise ValueError(problem)
    return text


def _server_url(text: str) -> str:
    return _secret(text) if text.startswith(("env:", "file:")) else _url(text)


def _server_type(text: str) -> str:
    if text == "sse":
        raise ValueError(
            "the transport sse is not spoken; most such servers have an address for streamable HTTP"
        )
    if text not in ("stdio", "http"):
        raise ValueError("a server is of type stdio or http")
    return text


def _given(values: dict[str, str]) -> dict[str, str]:
    """What a server is given by name: environment, headers."""
    for name, value in values.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", name, re.ASCII):
            raise ValueError("a name here has letters, digits, '_' and '-' only")
        if "\0" in value or "\n" in value or "\r" in value:
            raise ValueError(f"the value of {name} has a line break")
        if value.startswith(("env:", "file:")):
            _secret(value)
    return values


def _timezone(text: str) -> str:
    try:
        zoneinfo.ZoneInfo(text)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        known = zoneinfo.available_timezones()
        if known:  # a machine without any time zone data can't tell right from wrong
            hint = did_you_mean(text, known) or "it looks like Europe/Zurich"
            raise ValueError(f"this time zone is not known; {hint}") from None
    return text


def _watch(text: str) -> str:
    Watch.parse(text)
    return text


def _options(options: dict[str, Any]) -> dict[str, Any]:
    """Only what JSON can say, and not too deep: these values travel to engines as they are."""
    waiting: list[tuple[object, int]] = [(options, 1)]
    while waiting:
        value, depth = waiting.pop()
        if depth > MAX_OPTION_DEPTH:
            raise ValueError(f"options are nested more than {MAX_OPTION_DEPTH} levels deep")
        if isinstance(value, dict):
            waiting.extend((each, depth + 1) for each in value.values())
        elif isinstance(value, list):
            waiting.extend((each, depth + 1) for each in value)
        elif not isinstance(value, str | bool | int | float | None):
            raise ValueError("an option is a text, number, true, false, null, list or object")  # noqa: TRY004 - pydantic collects ValueError
        elif isinstance(value, float) and not math.isfinite(value):
            raise ValueError("infinity and nan are no options")
    return options


Name = Annotated[str, AfterValidator(_name)]
NameOrRole = Annotated[str, AfterValidator(_name_or_role)]
SecretText = Annotated[str, AfterValidator(_secret)]
PasswordText = Annotated[str, AfterValidator(_password)]
Url = Annotated[str, AfterValidator(_url)]
Word = Annotated[str, Field(min_length=1, max_length=200)]
Words = list[Word]
PlatformId = Annotated[int, Field(gt=-_INT64, lt=_INT64)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Seconds = Annotated[float, Field(gt=0, le=10_000_000, allow_inf_nan=False)]
Money = Annotated[float, Field(ge=0, le=1_000_000_000, allow_inf_nan=False)]
Tokens = Annotated[int, Field(ge=0, lt=_INT64)]
TokenCount = Annotated[int, Field(ge=0, le=1_000_000)]
SlotCount = Annotated[int, Field(ge=1, le=1000)]


class Strict(BaseModel):
    """A block of a file: unknown keys and wrong types are findings, values stay out of messages."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        hide_input_in_errors=True,
        regex_engine="rust-regex",
    )


class MatrixBlock(Strict):
    """`matrix` of an entry."""

    homeserver: Url | None = None
    user_id: Annotated[str, AfterValidator(_matrix_user)] | None = None
    password: PasswordText | None = None
    access_token: SecretText | None = None
    device_id: Word | None = None
    allowed_rooms: list[Annotated[str, AfterValidator(_matrix_room)]] | None = None
    allowed_users: list[Annotated[str, AfterValidator(_matrix_user)]] | None = None
    backlog_hours: Annotated[float, Field(gt=0, le=8760, allow_inf_nan=False)] | None = None
    file_after_pieces: Annotated[int, Field(ge=1, le=1000)] | None = None
    language: Word | None = None


class SlotsBlock(Strict):
    """`slots` of an entry, after a plain number was spread over the lanes."""

    interactive: SlotCount | None = None
    peer: SlotCount | None = None
    background: SlotCount | None = None


class BudgetBlock(Strict):
    """`budget` of an entry."""

    per_turn_usd: Money | None = None
    per_day_usd: Money | None = None
    per_month_usd: Money | None = None
    per_turn_tokens: Tokens | None = None
    per_day_tokens: Tokens | None = None
    per_tree_usd: Money | None = None
    per_tree_tokens: Tokens | None = None


class RestartBlock(Strict):
    """`restart` of an entry."""

    base_s: Seconds | None = None
    factor: Annotated[float, Field(ge=1, le=100, allow_inf_nan=False)] | None = None
    cap_s: Seconds | None = None
    jitter: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    max_restarts: Annotated[int, Field(ge=0, le=1000)] | None = None
    window_s: Seconds | None = None
    stable_s: Seconds | None = None
    exit42_max: Annotated[int, Field(ge=0, le=1000)] | None = None
    exit42_window_s: Seconds | None = None


class StreamingBlock(Strict):
    """`streaming` of an entry, after a plain truth value became `mode`."""

    mode: Literal["off", "buffered", "live"] | None = None
    reactions: bool | None = None
    typing: bool | None = None
    edit_interval_s: Seconds | None = None
    min_chars: Annotated[int, Field(ge=1, le=100_000)] | None = None
    idle_ms: Annotated[int, Field(ge=0, le=600_000)] | None = None


class MemoryBlock(Strict):
    """`memory` of an entry."""

    recall_tokens: TokenCount | None = None
    recall_entries: Annotated[int, Field(ge=0, le=100)] | None = None
    notes_tokens: TokenCount | None = None
    max_entries: Annotated[int, Field(ge=1, le=100_000)] | None = None
    history_tokens: Annotated[int, Field(ge=500, le=10_000_000)] | None = None
    summariser: Literal["excerpts", "engine"] | None = None
    summary_timeout_s: Annotated[float, Field(gt=0, le=300, allow_inf_nan=False)] | None = None


ServerText = Annotated[str, Field(max_length=4096, pattern=r"^[^\x00]*$")]


class McpServerBlock(Strict):
    """One server of `mcp`. What belongs together is checked when all layers are merged."""

    enabled: bool | None = None
    type: Annotated[str, AfterValidator(_server_type)] | None = None
    command: Annotated[ServerText, Field(min_length=1)] | None = None
    args: Annotated[list[ServerText], Field(max_length=200)] | None = None
    env: Annotated[dict[str, str], AfterValidator(_given)] | None = None
    url: Annotated[str, AfterValidator(_server_url)] | None = None
    headers: Annotated[dict[str, str], AfterValidator(_given)] | None = None
    tools: Words | None = None
    safety: dict[Word, Literal["safe", "moderate", "dangerous"]] | None = None
    trust_hints: bool | None = None
    call_timeout_s: Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)] | None = None
    start_timeout_s: Annotated[float, Field(gt=0, le=600, allow_inf_nan=False)] | None = None


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
"""As `model.agent.ENGINES`; a test holds them equal."""


class AgentFields(Strict):
    """What may be said about an agent, without its name."""

    enabled: bool | None = None
    nickname: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    description: str | None = None
    role: Word | None = None
    prompt: str | None = None
    capabilities: Words | None = None
    skills: list[Annotated[str, Field(min_length=1, max_length=20_000)]] | None = None
    team: Name | None = None
    transports: list[Literal["telegram", "matrix", "web", "console"]] | None = None
    telegram_token: SecretText | None = None
    telegram_base_url: Url | None = None
    allowed_user_ids: list[PlatformId] | None = None
    allowed_group_ids: list[PlatformId] | None = None
    group_mention_only: bool | None = None
    telegram_backlog_hours: Annotated[float, Field(gt=0, le=8760, allow_inf_nan=False)] | None = (
        None
    )
    telegram_file_after_pieces: Annotated[int, Field(ge=1, le=1000)] | None = None
    matrix: MatrixBlock | None = None
    engine: Engine | None = None
    provider: Word | None = None
    model: Word | None = None
    reasoning_effort: Word | None = None
    permission_mode: (
        Literal["default", "acceptEdits", "auto", "bypassPermissions", "dontAsk", "plan"] | None
    ) = None
    engine_options: Annotated[dict[str, Any], AfterValidator(_options)] | None = None
    fallback_model: Word | None = None
    fallback_provider: Word | None = None
    fallback_engine: Engine | None = None
    fallback_options: Annotated[dict[str, Any], AfterValidator(_options)] | None = None
    model_tier: Literal["primary", "fallback"] | None = None
    max_steps: Count | None = None
    turn_timeout_s: Seconds | None = None
    idle_timeout_s: Seconds | None = None
    tools: Words | None = None
    mcp: dict[Annotated[str, AfterValidator(_server_name)], McpServerBlock] | None = None
    can_delegate_to: list[NameOrRole] | None = None
    subscriptions: list[Annotated[str, AfterValidator(_watch)]] | None = None
    slots: SlotsBlock | None = None
    queue_limit: Count | None = None
    budget: BudgetBlock | None = None
    restart: RestartBlock | None = None
    streaming: StreamingBlock | None = None
    memory: MemoryBlock | None = None
    user_timezone: Annotated[str, AfterValidator(_timezone)] | None = None


class Entry(AgentFields):
    """One entry of agents.json."""

    name: Name


BLOCK_MODELS: Mapping[str, type[Strict]] = {
    "matrix": MatrixBlock,
    "slots": SlotsBlock,
    "budget": BudgetBlock,
    "restart": RestartBlock,
    "streaming": StreamingBlock,
    "memory": MemoryBlock,
}


def known_keys(where: KeyPath) -> Iterable[str]:
    """The keys that may stand in the object at `where`, counted from the entry itself."""
    if not where:
        return Entry.model_fields
    if where[0] == "mcp":
        return McpServerBlock.model_fields if len(where) == 2 else ()
    block = BLOCK_MODELS.get(str(where[-1]))
    return block.model_fields if block else ()


def expand_shorthands(values: dict[str, Any]) -> None:
    """Write `slots: 3` as a block with every lane, and `streaming: true` as its block."""
    slots = values.get("slots")
    if isinstance(slots, int) and not isinstance(slots, bool):
        values["slots"] = dict.fromkeys(SlotsBlock.model_fields, slots)
    if isinstance(values.get("streaming"), bool):
        values["streaming"] = {"mode": mode_of(values["streaming"])}


def without_nulls(values: Mapping[str, Any]) -> dict[str, Any]:
    """Drop known keys set to null, in the entry and its blocks: null means "not said here".

    An unknown key stays, so that it is found whatever its value.
    """
    kept = {
        key: value
        for key, value in values.items()
        if value is not None or (key not in Entry.model_fields and key not in ENTRY_KEYS)
    }
    for block, model in BLOCK_MODELS.items():
        if isinstance(kept.get(block), dict):
            kept[block] = {
                key: value
                for key, value in kept[block].items()
                if value is not None or key not in model.model_fields
            }
    return kept


def wrong_shape(value: object, expected: str) -> str:
    """The sentence for a value that is no object or list where one must stand."""
    return f"expected {expected}, found {kind_of(value)}"
