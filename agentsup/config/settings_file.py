"""The tables of config.toml, with what each setting means: their JSON Schema is made from this."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from agentsup.config.fencing import FenceSettings
from agentsup.config.fields import Section, Texts, as_tuple, setting, timezone_name
from agentsup.config.observing import OtelSettings
from agentsup.config.voice import VoiceSettings
from agentsup.model.principal import PersonRole

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

    enabled: bool = setting(True, "Whether there is background work at all.")
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
    body_bytes: Annotated[int, Field(ge=1024, le=1 << 30)] = setting(
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

    level: Literal["debug", "info", "warning", "error"] = setting("info", "Least level logged.")
    format: Literal["auto", "text", "json"] = setting(
        "auto", "Form on standard error: text in a terminal, else JSON lines."
    )
    file: bool = setting(True, "Whether logs/agentsup.log is written.")
    max_bytes: Annotated[int, Field(ge=65_536, le=1 << 40)] = setting(
        10_000_000, "Size at which a new log file is begun."
    )
    keep: Annotated[int, Field(ge=0, le=1000)] = setting(5, "How many earlier log files are kept.")


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
    api: ApiSettings = ApiSettings()
    tasks: TaskSettings = TaskSettings()
    limits: LimitSettings = LimitSettings()
    budget: BudgetSettings = BudgetSettings()
    prices: dict[str, PriceSettings] = Field(default_factory=dict)
    fence: FenceSettings = FenceSettings()
    log: LogSettings = LogSettings()
    otel: OtelSettings = OtelSettings()
    voice: VoiceSettings = VoiceSettings()
    people: dict[str, Person] = Field(default_factory=dict)
    hooks: dict[str, bool] = Field(
        default_factory=dict,
        description="Stages of calls by name, on or off; agentsup hooks lists.",
    )
    main: dict[str, Any] = Field(default_factory=dict, repr=False)
    agent_defaults: dict[str, Any] = Field(default_factory=dict, repr=False)
