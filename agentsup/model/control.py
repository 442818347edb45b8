"""What chat commands, the CLI and HTTP may ask of the running daemon.

Implemented once, in ``daemon.control``; everything above the rings of work speaks to this port, so
that nothing imports upward.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from agentsup.model.agent import OFFLINE
from agentsup.model.health import HealthReport
from agentsup.model.principal import Principal

_KIND = re.compile(r"[A-Za-z_]\w*(?=:|\Z)")


def kind_of(reason: str) -> str:
    """What kind of error a reason names (``EngineCrash: …``); its words may quote somebody."""
    found = _KIND.match(reason)
    return found[0] if found else ""


@dataclass(frozen=True, slots=True)
class AgentView:
    """One agent as ``/agents`` shows it. ``uptime_s`` starts anew with each rebuild."""

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
    """Which of its models is wanted now: primary or fallback."""
    fallback_model: str = ""
    """Empty where there is none."""
    pending: str = ""
    """A rebuild or stop under way, in words; shown by ``agents diff``."""
    warnings: tuple[str, ...] = ()
    work: tuple[str, ...] = ()
    """One line per running turn."""
    engine_reason: str = ""
    """Why ``auto`` came to this engine; empty where the entry names it."""

    @property
    def thinks_with(self) -> str:
        """The engine and its model; the offline engine has none, whatever the entry names."""
        return " / ".join(each for each in (self.engine, self._used_model) if each)

    @property
    def _used_model(self) -> str:
        return "" if self.engine == OFFLINE else self.model

    def seen_by(self, who: Principal) -> AgentView:
        """The agent as this person may see it, in a chat as over HTTP: what an engine says when it
        fails, or of its work, may quote whose message it was. An operator sees everything."""
        if who.is_operator:
            return self
        return replace(
            self, last_reason="", last_crash_error="", warnings=(), work=(), engine_reason=""
        )

    def told_to(self, agent_id: str) -> AgentView:
        """The agent as another one's engine may see it: of errors their kind, not their words."""
        if agent_id == self.agent_id:
            return self
        return replace(
            self,
            last_reason=kind_of(self.last_reason),
            last_crash_error=kind_of(self.last_crash_error),
            warnings=(),
            work=(),
            engine_reason="",
        )


@dataclass(frozen=True, slots=True)
class OverridableField:
    """A field of an agent that an operator may set without an edit of a file."""

    agent: str
    field: str
    """Its dotted path, such as ``streaming.mode``."""
    value: Any
    origin: str
    """Where the value comes from; ``override`` where an operator set it."""
    takes: str
    """What a change takes until it is in effect: ``live`` or ``rebuild``."""
    doc: str
    choices: tuple[str, ...] = ()
    """The values there are, where they can be listed."""
    before: Any = None
    """What it was before the change that is reported."""
    raises_rights: bool = False
    """That change lets the agent do more without asking anybody."""


@dataclass(frozen=True, slots=True)
class StandingSchedule:
    """A task that runs again by itself, and when: a stop leaves it."""

    task_id: str
    name: str
    next_at: int
    zone: str = ""
    """In which time zone its times are meant (IANA), or empty."""


@dataclass(frozen=True, slots=True)
class BackgroundWork:
    """Work that goes on without a turn that waits for it. ``work_id`` is that of its task, or of the
    message that it is; ``state`` queued | leased | parked."""

    work_id: str
    name: str
    agent: str
    state: str
    is_task: bool = False


@dataclass(frozen=True, slots=True)
class StopReport:
    """Exact counts of one stop. Messages are counted by the state they were in."""

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
    schedules: tuple[StandingSchedule, ...] = ()
    """Those in the scope, which stay, the next one first."""


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
    """The standing complaint about an edit that was not applied, or empty."""
    warnings: tuple[str, ...] = ()
    conservation: dict[str, int] = field(default_factory=dict)

    def seen_by(self, who: Principal) -> DaemonView:
        """The daemon as this person may see it: paths and what an edit got wrong are an
        operator's."""
        if who.is_operator:
            return self
        return replace(self, home="", pid=0, config_error="", warnings=())


class Control(Protocol):
    """Methods that name an agent raise ``NotFound`` (with ``did_you_mean``) or ``Gone``."""

    @property
    def draining(self) -> bool: ...

    async def agents(self) -> tuple[AgentView, ...]: ...

    async def agent(self, name: str) -> AgentView: ...

    async def start_agent(self, name: str, by: Principal) -> AgentView: ...

    async def stop_agent(self, name: str, by: Principal) -> AgentView: ...

    async def restart_agent(self, name: str, by: Principal) -> AgentView: ...

    async def stop(self, scope: str, by: Principal, *, given_in: str = "") -> StopReport:
        """``scope`` is ``all``, ``agent:<agent_id>`` or ``session:<session_id>``. ``given_in`` is the
        channel that has dropped its own unread texts already; those of all others are dropped."""

    async def interrupt(self, session_id: str, by: Principal) -> StopReport:
        """End the session's running turn, leave its queue."""

    async def cancel(self, message_id: str, by: Principal) -> None:
        """End one open message, and the turn on it. Raises ``NotFound`` and ``IllegalTransition``."""

    async def diff(self) -> dict[str, Any]:
        """What an edit has left pending, overrides, the standing config error."""

    async def explain(self, name: str) -> list[dict[str, Any]]:
        """Each value of an agent with its origin; secrets redacted."""

    async def overridable(self, name: str) -> tuple[OverridableField, ...]:
        """The fields that an operator may set without an edit of a file, as they are now."""

    async def set_override(
        self, name: str, field: str, value: Any, by: Principal
    ) -> OverridableField:
        """An operator's override (``/set``, ``/model``); ``value`` None clears it.

        Raises ``Forbidden`` for anybody else, ``BadRequest`` for a field or value that can't be, and
        ``Conflict`` where it would have no effect."""

    async def status(self) -> DaemonView: ...

    async def health(self) -> HealthReport: ...

    async def drain(self, by: Principal) -> None:
        """Stop taking work, let turns end, then end the process."""

    async def exit(self, code: int, by: Principal) -> None:
        """End the daemon with ``code`` after a drain; 42 asks for a restart."""


@dataclass(frozen=True, slots=True)
class Button:
    """A chat command that a person may give by a press instead of typing it."""

    label: str
    command: str
    """The whole command, such as ``/agent_restart bob``."""
    once: bool = False
    """It changes something: a second press has no effect and is told so."""
    confirm: str = ""
    """What is asked before the command is run, or empty."""
    operator: bool = False
    """Only an operator may press it."""


@dataclass(frozen=True, slots=True)
class CommandReply:
    """Text for the person; ``ok`` False marks a refusal.

    ``text`` says everything by itself; ``buttons`` (rows) are for channels that have some.
    """

    text: str
    ok: bool = True
    code: str = ""
    buttons: tuple[tuple[Button, ...], ...] = ()
    live: str = ""
    """The command that shows it anew, where what is shown changes by itself."""


@dataclass(frozen=True, slots=True)
class CommandContext:
    """Who typed a command, and where."""

    agent_id: str
    agent_name: str
    channel: str
    conversation: str
    principal: Principal
    language: str = ""
    """The person's language as the platform names it (``de``, ``pt-br``), or empty."""
    has_buttons: bool = False
    """The channel shows buttons, so long lists come in pages."""
    is_pressed: bool = False
    """It was pressed, not typed."""
    is_shared: bool = False
    """Others read the conversation, too: what is shown there is the person's own, and what all share."""
    key: str = ""
    """Names what was typed for good, where it may come once more: a page says again what a daemon
    that was killed had not answered, and what makes something new makes it once."""

    @property
    def given_in(self) -> str:
        """The channel that drops by itself what was typed before this; see `Control.stop`."""
        return "" if self.is_pressed else self.channel


@dataclass(frozen=True, slots=True)
class CommandInfo:
    """A command as menus and completion show it. ``usage`` is what follows its name."""

    name: str
    usage: str
    help: str
    operator: bool


class Commands(Protocol):
    """Chat commands; they pass every queue."""

    def is_command(self, text: str) -> bool: ...

    async def run(self, text: str, context: CommandContext) -> CommandReply: ...

    def offered(self, agent_id: str, language: str = "") -> tuple[CommandInfo, ...]:
        """The commands of that agent's chat, in the person's language where there are words."""


@dataclass(frozen=True, slots=True)
class TokenIdentity:
    """What a bearer token stands for: ``operator``, an agent, or a run (with its message)."""

    principal: Principal
    agent_id: str = ""
    message_id: str = ""


class Tokens(Protocol):
    def identify(self, token: str) -> TokenIdentity | None:
        """None for an unknown or expired token. Compares in constant time."""
        ...

    def watched_by(self, token: str, watcher: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `watcher` if the token is ended during the block."""
