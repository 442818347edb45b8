"""The requests that chat commands, the CLI and HTTP may make to the running daemon.

Implemented once, in ``daemon.runtime.control``. Lower packages use this port, so that nothing
imports upward.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from agentsup.model.agent import OFFLINE
from agentsup.model.chat_model import ChatModelChoices
from agentsup.model.health import HealthReport
from agentsup.model.managed_bots import BotOffer
from agentsup.model.principal import Principal

_KIND = re.compile(r"[A-Za-z_]\w*(?=:|\Z)")


def kind_of(reason: str) -> str:
    """The kind of error that a reason begins with (``EngineCrash: …``); the rest may quote
    somebody."""
    found = _KIND.match(reason)
    return found[0] if found else ""


@dataclass(frozen=True, slots=True)
class AgentView:
    """One agent as ``/agents`` shows it. ``uptime_s`` starts again with each rebuild."""

    name: str
    agent_id: str
    instance_id: str
    status: str
    desired: str
    role: str
    engine: str
    model: str
    uptime_s: float | None
    restarts: int
    """Restarts within the policy's window."""
    last_reason: str
    last_crash_error: str
    next_retry_at: int | None
    queued: int
    running: int
    parked: int
    is_main: bool = False
    model_tier: str = "primary"
    """The model that is chosen now: primary or fallback."""
    fallback_model: str = ""
    """Empty if there is none."""
    pending: str = ""
    """A rebuild or stop in progress, in words; shown by ``agents diff``."""
    warnings: tuple[str, ...] = ()
    work: tuple[str, ...] = ()
    """One line per running turn."""
    engine_reason: str = ""
    """Why ``auto`` chose this engine; empty if the entry names it."""
    engine_problem: str = ""
    """Why the engine is worse than what the files name, with the cure; else empty."""

    @property
    def thinks_with(self) -> str:
        """The engine and its model; the offline engine has none, even if the entry names one."""
        return " / ".join(each for each in (self.engine, self._used_model) if each)

    @property
    def _used_model(self) -> str:
        return "" if self.engine == OFFLINE else self.model

    def seen_by(self, who: Principal) -> AgentView:
        """The agent as this person may see it, in a chat and over HTTP.

        Only an operator sees reasons, errors, warnings and work: they may quote another person's
        message.
        """
        if who.is_operator:
            return self
        return self._with_reasons(lambda reason: "")

    def for_agent(self, agent_id: str) -> AgentView:
        """The agent as the engine of another agent may see it: only the kinds of errors, not their
        texts."""
        return self if agent_id == self.agent_id else self._with_reasons(kind_of)

    def _with_reasons(self, shown: Callable[[str], str]) -> AgentView:
        return replace(
            self,
            last_reason=shown(self.last_reason),
            last_crash_error=shown(self.last_crash_error),
            warnings=(),
            work=(),
            engine_reason="",
            engine_problem="",
        )


@dataclass(frozen=True, slots=True)
class OverridableField:
    """A field of an agent that an operator may set without an edit of a file."""

    agent: str
    field: str
    """Its dotted path, such as ``streaming.mode``."""
    value: Any
    origin: str
    """The source of the value; ``override`` where an operator set it."""
    takes: str
    """The class of a change: ``live`` or ``rebuild``."""
    doc: str
    choices: tuple[str, ...] = ()
    """The possible values, if they can be listed."""
    before: Any = None
    """The value before the reported change."""
    raises_rights: bool = False
    """Whether that change lets the agent do more without approval."""
    unchecked: str = ""
    """Why the value of that change could not be checked; empty if it was, or need not be."""


@dataclass(frozen=True, slots=True)
class ModelPrice:
    """US dollars for a million tokens, in and out; both 0 if nothing is paid by the token."""

    input_usd: float
    output_usd: float


@dataclass(frozen=True, slots=True)
class OfferedModels:
    """The models that an agent can be given, as its provider lists them."""

    where: str
    """The address that was asked."""
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RemainingSchedule:
    """A task with a schedule that a stop does not end, and its next time."""

    task_id: str
    name: str
    next_at: int
    zone: str = ""
    """The time zone of its times (IANA), or empty."""


@dataclass(frozen=True, slots=True)
class BackgroundWork:
    """Work in the background: no turn waits for it.

    ``work_id`` is the id of its task, or else of its message; ``state`` is queued | leased |
    parked.
    """

    work_id: str
    name: str
    agent: str
    state: str
    is_task: bool = False


@dataclass(frozen=True, slots=True)
class StopReport:
    """Exact counts of one stop. Messages are counted by the state in which they were."""

    scope: str
    running: int
    queued: int
    parked: int
    processes: int
    agents: int
    elapsed_ms: float
    durable: bool = True
    """False: the epoch could not be committed; the stop holds until this process ends."""
    names: tuple[str, ...] = ()
    schedules: tuple[RemainingSchedule, ...] = ()
    """The schedules in the scope, which continue, the next one first."""


@dataclass(frozen=True, slots=True)
class DaemonView:
    version: str
    boot_id: str
    node_id: str
    pid: int
    home: str
    started_at: int
    uptime_s: float
    state: str
    """starting | running | draining."""
    url: str
    agents_up: int
    agents_total: int
    config_error: str = ""
    """The error of an edit that is not applied, or empty."""
    warnings: tuple[str, ...] = ()
    conservation: dict[str, int] = field(default_factory=dict)

    def seen_by(self, who: Principal) -> DaemonView:
        """The daemon as this person may see it: only an operator sees paths and errors of edits."""
        if who.is_operator:
            return self
        return replace(self, home="", pid=0, config_error="", warnings=())


class Control(Protocol):
    """The requests. Methods that name an agent raise ``NotFound`` (with ``did_you_mean``) or
    ``Gone``."""

    @property
    def draining(self) -> bool: ...

    async def agents(self) -> tuple[AgentView, ...]: ...

    async def agent(self, name: str) -> AgentView: ...

    async def start_agent(self, name: str, by: Principal) -> AgentView: ...

    async def stop_agent(self, name: str, by: Principal) -> AgentView: ...

    async def restart_agent(self, name: str, by: Principal) -> AgentView: ...

    async def stop(self, scope: str, by: Principal, *, given_in: str = "") -> StopReport:
        """Stop ``scope``: ``all``, ``agent:<agent_id>`` or ``session:<session_id>``.

        Unread texts of all channels are dropped; ``given_in`` names the channel that has dropped
        its own already.
        """

    async def interrupt(self, session_id: str, by: Principal) -> StopReport:
        """End the session's running turn; its queue goes on."""

    async def cancel(self, message_id: str, by: Principal) -> None:
        """End one open message, and its turn. Raises ``NotFound`` and ``IllegalTransition``."""

    async def diff(self) -> dict[str, Any]:
        """Pending rebuilds and stops, overrides, settings that need a restart, and the current
        config error."""

    async def explain(self, name: str) -> list[dict[str, Any]]:
        """Each value of an agent with its origin; secrets redacted."""

    async def overridable(self, name: str) -> tuple[OverridableField, ...]:
        """The fields that an operator may override, with their current values."""

    async def set_override(
        self, name: str, field: str, value: Any, by: Principal
    ) -> OverridableField:
        """Set an operator's override (``/set``, ``/model``); ``value`` None clears it.

        Raises ``Forbidden`` for anybody but an operator, ``BadRequest`` for a wrong field or value,
        and ``Conflict`` if it would have no effect, or names a model that the provider lacks.
        """

    async def models(self, name: str, by: Principal) -> OfferedModels:
        """Ask the agent's provider for its models.

        Raises ``Forbidden`` for anybody but an operator, ``Conflict`` if the agent's engine chooses
        among models of its own, and ``EngineFailed`` if the provider does not tell.
        """

    async def model_prices(self, name: str, models: Sequence[str]) -> tuple[ModelPrice | None, ...]:
        """Prices of these models of the agent's provider; None where one is not known."""

    @property
    def chat_models(self) -> ChatModelChoices:
        """The models of single chats and topics."""

    async def status(self) -> DaemonView: ...

    async def health(self) -> HealthReport: ...

    async def drain(self, by: Principal) -> None:
        """Take no new work, let turns end, then end the process."""

    async def exit(self, code: int, by: Principal) -> None:
        """End the daemon with ``code`` after a drain; 42 asks for a restart."""


@dataclass(frozen=True, slots=True)
class CommandButton:
    """A chat command that a person can press instead of typing it."""

    label: str
    command: str
    """The whole command, such as ``/agent_restart bob``."""
    once: bool = False
    """Whether it changes something: a second press has no effect and is answered so."""
    confirm: str = ""
    """The question before the command is run, or empty."""
    operator: bool = False
    """Whether only an operator may press it."""


CommandButtons = tuple[tuple[CommandButton, ...], ...]
"""Buttons in rows."""


@dataclass(frozen=True, slots=True)
class CommandReply:
    """The reply to a command; ``ok`` False marks a refusal.

    ``text`` is complete by itself; ``buttons`` (rows) are for channels that show buttons.
    """

    text: str
    ok: bool = True
    code: str = ""
    buttons: CommandButtons = ()
    live: str = ""
    """The command that shows it again, if what it shows changes by itself; else empty."""
    bot_offer: BotOffer | None = None
    """A bot that the person may create; Telegram has a key for that."""


@dataclass(frozen=True, slots=True)
class CommandContext:
    """The person who gave a command, and the conversation."""

    agent_id: str
    agent_name: str
    channel: str
    conversation: str
    principal: Principal
    language: str = ""
    """The person's language in the platform's form (``de``, ``pt-br``), or empty."""
    has_buttons: bool = False
    """Whether the channel shows buttons, so that long lists come in pages."""
    is_pressed: bool = False
    """Whether it was pressed, not typed."""
    is_shared: bool = False
    """Whether others read the conversation too. Only the person's own data and shared data are
    shown there."""
    key: str = ""
    """An idempotency key, if the same command may arrive again. The web page repeats what a killed
    daemon had not answered, and a command that creates something then creates it once."""

    @property
    def address(self) -> tuple[str, str, str]:
        """The id of the agent, the channel and the conversation."""
        return self.agent_id, self.channel, self.conversation

    @property
    def given_in(self) -> str:
        """The channel that drops by itself what was typed before this; see ``Control.stop``."""
        return "" if self.is_pressed else self.channel


@dataclass(frozen=True, slots=True)
class CommandInfo:
    """A command as menus and completion show it. ``usage`` is the text after its name."""

    name: str
    usage: str
    help: str
    operator: bool


class Commands(Protocol):
    """Chat commands; they do not wait in queues."""

    def is_command(self, text: str) -> bool: ...

    async def run(self, text: str, context: CommandContext) -> CommandReply: ...

    def offered(self, agent_id: str, language: str = "") -> tuple[CommandInfo, ...]:
        """The commands of that agent's chat, in the person's language if it is translated."""


@dataclass(frozen=True, slots=True)
class TokenIdentity:
    """The holder of a bearer token: ``operator``, an agent, or a run (with its message)."""

    principal: Principal
    agent_id: str = ""
    message_id: str = ""


class Tokens(Protocol):
    def identify(self, token: str) -> TokenIdentity | None:
        """None for an unknown or expired token. Compares in constant time."""

    def watched_by(self, token: str, watcher: Callable[[], None]) -> AbstractContextManager[None]:
        """Call ``watcher`` if the token is revoked during the block."""
