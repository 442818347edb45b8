"""The tables of config.toml, with what each setting means: their JSON Schema is made from this.

A change of a setting takes effect at once, unless it, or its table, is marked with ``PROCESS``.
"""

from __future__ import annotations

import zoneinfo
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from agentsup.config.fence_paths import expanded
from agentsup.config.findings import did_you_mean
from agentsup.model.agent_fields import FieldClass
from agentsup.model.principal import PersonRole

PROCESS = FieldClass.PROCESS


class Section(BaseModel):
    """A table of config.toml: unknown keys are findings."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


def setting(default: object, meaning: str) -> Any:
    """Declare a setting with its default and what it means to the person who writes the file."""
    return Field(default, description=meaning)


def as_tuple(value: object) -> object:
    """Convert a list of the file to a tuple, since settings are immutable, even if types are
    strict."""
    return tuple(value) if isinstance(value, list) else value


Texts = Annotated[tuple[str, ...], BeforeValidator(as_tuple)]


def timezone_name(text: str) -> str:
    """The name of a time zone, or an empty text. Raises ``ValueError`` for an unknown one."""
    try:
        if text:
            zoneinfo.ZoneInfo(text)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        known = zoneinfo.available_timezones()
        if known:  # a machine without any time zone data can't tell right from wrong
            hint = did_you_mean(text, known) or "it looks like Europe/Zurich"
            raise ValueError(f"this time zone is not known; {hint}") from None
    return text


Seconds = Annotated[float, Field(gt=0, le=100_000_000, allow_inf_nan=False)]
Port = Annotated[int, Field(ge=0, le=65535)]
Count = Annotated[int, Field(ge=1, le=100_000_000)]
Money = Annotated[float, Field(ge=0, le=1_000_000_000, allow_inf_nan=False)]
TokenCount = Annotated[int, Field(ge=0, lt=1 << 63)]


class ApiSettings(Section):
    """``[api]``: where the internal HTTP API listens."""

    bind: str = setting("127.0.0.1", "Address on which the API and the page listen.")
    port: Port = setting(8799, "Port of the API and the page; 0 takes a free one.")
    allowed_hosts: Texts = setting((), "Further names by which browsers may call the page.")
    connections: Annotated[int, Field(ge=16, le=16_384)] = setting(
        512, "Most connections at once; half of the file descriptors that are allowed is the most."
    )


class TaskSettings(Section):
    """``[tasks]``: background work."""

    enabled: Annotated[bool, PROCESS] = setting(True, "Whether there is background work at all.")
    max_parallel: Count = setting(10, "Most background turns of all agents at once.")
    timeout_s: Seconds = setting(7200.0, "Longest run of a task, in seconds.")
    keep_days: Count = setting(14, "Days until the folder of a deleted task is removed.")


class LimitSettings(Section):
    """``[limits]``: bounds on requests, turns, processes and stored data."""

    depth: Annotated[int, Field(ge=1, le=64)] = setting(
        8, "How many agents one request may pass through, one below the other."
    )
    messages_per_root: Count = setting(200, "Most messages that one request may cause.")
    fan_out: Count = setting(20, "Most agents that one call may hand work to.")
    uploads_per_person: Count = setting(1000, "Most uploaded files that are kept for a person.")
    upload_mb_per_person: Count = setting(1024, "Most MiB of uploads that are kept for a person.")
    attempts: Annotated[int, Field(ge=1, le=100)] = setting(
        4, "How often a message is tried before it is a failed message."
    )
    crashes: Annotated[int, Field(ge=1, le=100)] = setting(
        2, "How often an agent may crash over a message before the message is given up."
    )
    ready_timeout_s: Seconds = setting(120.0, "Seconds an agent may take to get ready.")
    approval_s: Seconds = setting(600.0, "Seconds a question for approval waits for its answer.")
    drain_s: Seconds = setting(30.0, "Seconds that running turns have to end at a stop.")
    body_bytes: Annotated[int, Field(ge=1024, le=1 << 30), PROCESS] = setting(
        1 << 20, "Most bytes of a message or a request."
    )
    processes: Count = setting(8, "Most programs of engines at work at once.")
    processes_per_agent: Count = setting(4, "The same for one agent.")
    held_processes: Count = setting(8, "Most programs of engines that wait for a person besides.")
    mcp_processes: Count = setting(64, "Most programs of MCP servers of all agents.")
    process_memory_mb: Annotated[int, Field(ge=16, le=1 << 20)] = setting(
        4096, "Memory in MiB at which a program of an agent, with all it started, is ended."
    )
    keep_days: Count = setting(90, "Days until ended messages and their events are removed.")
    received_days: Annotated[int, Field(ge=0, le=36_500)] = setting(
        365, "Days that files people sent stay in an agent's inbox unchanged; 0: for ever."
    )
    backups: Annotated[int, Field(ge=0, le=1000)] = setting(
        7, "Daily copies of the store that are kept; the newest one always is."
    )


_WITH_MESSAGES = "a trace is kept as long as its messages ([limits] keep_days); remove this line"
WITHOUT_EFFECT: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "limits": {
            "pending_per_sender": "queue_limit of an agent bounds what may wait; remove this line",
            "resume_age_s": "a turn is taken up again within 15 minutes; remove this line",
            "aging_s": "what waits rises by one priority each half hour; remove this line",
            "send_timeout_s": (
                "each request has a timeout of its own, 300 s without one; remove this line"
            ),
        },
        "traces": dict.fromkeys(("enabled", "keep_days", "max_spans"), _WITH_MESSAGES),
    }
)
"""Keys by table that earlier versions accepted and that are not read, with a hint.

A file with one is still accepted: an upgrade must not keep a daemon from starting.
"""


class BudgetSettings(Section):
    """``[budget]``: what all agents together may spend, and what one request may cause."""

    per_day_usd: Money | None = setting(None, "US dollars a day.")
    per_month_usd: Money | None = setting(None, "US dollars a month.")
    per_day_tokens: TokenCount | None = setting(None, "Tokens a day.")
    per_tree_usd: Money | None = setting(None, "US dollars that one request may cause.")
    per_tree_tokens: TokenCount | None = setting(None, "Tokens that one request may cause.")


class PriceSettings(Section):
    """``[prices."MODEL"]``: US dollars per million tokens, for a model without built-in price."""

    input: Money = Field(description="US dollars per million tokens that the model reads.")
    output: Money = Field(description="US dollars per million tokens that the model writes.")
    cache_read: Money | None = setting(
        None, "US dollars per million tokens from the provider's cache; null: as `input`."
    )
    cache_write: Money | None = setting(
        None, "US dollars per million tokens into the provider's cache; null: as `input`."
    )


class LogSettings(Section):
    """``[log]``: what is logged, and how."""

    level: Annotated[Literal["debug", "info", "warning", "error"], FieldClass.LIVE] = setting(
        "info", "Least level logged."
    )
    format: Literal["auto", "text", "json"] = setting(
        "auto", "Form on standard error: text in a terminal, else JSON lines."
    )
    file: bool = setting(True, "Whether logs/agentsup.log is written.")
    max_bytes: Annotated[int, Field(ge=65_536, le=1 << 40)] = setting(
        10_000_000, "Size at which a new log file is begun."
    )
    keep: Annotated[int, Field(ge=0, le=1000)] = setting(5, "How many earlier log files are kept.")


def _absolute_path(path: str) -> str:
    if not path.startswith(("/", "~/")):
        raise ValueError("a place is named by its whole path, or from ~/ on")
    return path


Paths = Annotated[
    tuple[Annotated[str, AfterValidator(_absolute_path)], ...], BeforeValidator(as_tuple)
]


class FenceSettings(Section):
    """``[fence]``: the program fence around agents' programs.

    They can't reach the home, except the agent's own part of it, nor the paths in ``closed``. They
    write there, in temporary files and in ``writable`` only; everything else they can read.
    ``auto``: the fence is used if the system supports it; ``required``: without it no program is
    run; ``off``. ``sockets``: paths of sockets that programs may connect to; others are closed if
    the kernel can do that.
    """

    mode: Literal["auto", "required", "off"] = setting(
        "auto", "auto: if the system supports it; required: no program without it; off."
    )
    writable: Paths = setting((), "Further paths that programs may write, such as ~/projects.")
    closed: Paths = setting((), "Further paths that programs can't open, such as ~/Documents.")
    sockets: Paths = setting((), "Sockets that programs may connect to, by path.")

    def paths(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """The additional closed paths; ``~`` is the home of the daemon's user."""
        return tuple(expanded(path, environ) for path in self.closed)

    def writable_paths(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """Temporary files and ``writable``; ``~`` is the home of the daemon's user."""
        usual = environ.get("TMPDIR") or "/tmp"  # noqa: S108 - where programs look
        return (usual, *(expanded(path, environ) for path in self.writable))

    def socket_paths(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """Sockets that programs may connect to; ``~`` is the home of the daemon's user."""
        return tuple(expanded(path, environ) for path in self.sockets)


def _address(text: str) -> str:
    if text:
        try:
            parts = urlsplit(text)
            is_address = parts.scheme in ("http", "https") and bool(parts.hostname)
        except ValueError:
            is_address = False
        if not is_address:
            raise ValueError("this is no address of an OTLP receiver, as http://localhost:4318 is")
    return text


class OtelSettings(Section):
    """``[otel]``: where spans are sent by OTLP over HTTP; without an endpoint nowhere."""

    endpoint: Annotated[str, AfterValidator(_address)] = setting(
        "", "http://host:4318; /v1/traces is added if there is no path."
    )
    headers: dict[str, str] = Field(
        default_factory=dict, repr=False, description="Values may be env:NAME or file:PATH."
    )
    service_name: Annotated[str, Field(min_length=1, max_length=200)] = setting(
        "agentsup", "Name under which spans are sent."
    )
    content: bool = setting(False, "Whether arguments of calls and texts of errors are sent too.")

    @property
    def url(self) -> str:
        """The address to which spans are posted; empty without an endpoint."""
        if not self.endpoint:
            return ""
        bare = self.endpoint.rstrip("/")
        return self.endpoint if urlsplit(bare).path else f"{bare}/v1/traces"


FILE = "{file}"
"""Stands for the recording among the arguments of ``hear_command``."""


def _server_address(text: str) -> str:
    if text:
        parts = urlsplit(text)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username:
            raise ValueError("this is no address of a server, as https://api.openai.com/v1 is")
    return text.rstrip("/")


class VoiceSettings(Section):
    """``[voice]``: how voice messages become texts; without a server or a program they do not."""

    hear_url: Annotated[str, AfterValidator(_server_address)] = setting(
        "", "Server with /audio/transcriptions, such as https://api.openai.com/v1."
    )
    hear_key: str = Field("", repr=False, description="The server's key, as env:NAME or file:PATH.")
    hear_model: Annotated[str, Field(min_length=1, max_length=200)] = setting(
        "whisper-1", "Model that the server is asked for."
    )
    hear_command: Texts = setting(
        (), "Instead of a server, a program: {file} is the recording, its output the text."
    )
    language: str = setting("", "Language that is spoken, such as de; empty: it is recognised.")
    max_minutes: Annotated[int, Field(ge=1, le=240)] = setting(
        20, "Longer recordings are not listened to."
    )
    timeout_s: Annotated[float, Field(gt=0, le=3600)] = setting(
        120.0, "Seconds that one recording may take."
    )

    @model_validator(mode="after")
    def _one_way(self) -> VoiceSettings:
        if self.hear_command and self.hear_url:
            raise ValueError("hear_url and hear_command exclude each other: name one of them")
        if self.hear_command and FILE not in " ".join(self.hear_command):
            raise ValueError(f"hear_command must have {FILE} where the recording is named")
        return self

    @property
    def is_on(self) -> bool:
        """Whether voice messages are listened to."""
        return bool(self.hear_url or self.hear_command)


class Person(Section):
    """``[people.NAME]``: the platform ids of a person, and the person's role."""

    role: Literal["viewer", "user", "operator", "manager"] = setting(
        "user", "What the person may do."
    )
    telegram: Annotated[tuple[int, ...], BeforeValidator(as_tuple)] = setting(
        (), "Telegram user ids, as numbers."
    )
    matrix: Texts = setting((), "Matrix user ids, such as @anna:example.org.")
    language: str = setting(
        "", "The person's language, such as de, if the platform does not tell it."
    )
    timezone: Annotated[str, AfterValidator(timezone_name)] = setting(
        "", "The person's time zone, such as Europe/Zurich; else the agent's."
    )
    agents: Texts = setting(
        (), "The agents with whose bots the person may talk, and no page; empty: all, and the page."
    )

    def may_use(self, agent: str) -> bool:
        """Whether the person may talk to the agent of that name."""
        fold = agent.casefold()
        return not self.agents or any(each.casefold() == fold for each in self.agents)

    @property
    def level(self) -> PersonRole:
        """The role as an ordered value for comparisons."""
        return PersonRole[self.role.upper()]


class SettingsFile(Section):
    """The shape of config.toml."""

    main_crash: Literal["exit", "restart"] = setting(
        "exit", "What a crash of main does: end the daemon with code 1, or restart main alone."
    )
    restart_in_place: Literal["auto", "always", "never"] = setting(
        "auto",
        "Whether a restart begins anew in the same process; auto: unless systemd or a container"
        " restarts it.",
    )
    pairing: bool = setting(
        True,
        "Whether a stranger who writes to a bot in private gets a code with which an operator can let"
        " them in; false: strangers get no answer.",
    )
    api: Annotated[ApiSettings, PROCESS] = ApiSettings()
    tasks: TaskSettings = TaskSettings()
    limits: LimitSettings = LimitSettings()
    budget: BudgetSettings = BudgetSettings()
    prices: dict[str, PriceSettings] = Field(default_factory=dict)
    fence: FenceSettings = FenceSettings()
    log: Annotated[LogSettings, PROCESS] = LogSettings()
    otel: Annotated[OtelSettings, PROCESS] = OtelSettings()
    voice: VoiceSettings = VoiceSettings()
    people: dict[str, Person] = Field(default_factory=dict)
    hooks: dict[str, bool] = Field(
        default_factory=dict,
        description="Stages of calls by name, on or off; agentsup hooks lists.",
    )
    main: dict[str, Any] = Field(default_factory=dict, repr=False)
    agent_defaults: dict[str, Any] = Field(default_factory=dict, repr=False)
