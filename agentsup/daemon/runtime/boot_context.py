"""The parts that exist before the daemon is built, and the values from which others are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

from agentsup.api.http import WebDependencies
from agentsup.approvals import DecisionRecorder
from agentsup.config import NAMED_S, ConfigFiles, ConfigSnapshot, Home, resolve
from agentsup.daemon.runtime import boot as boots
from agentsup.daemon.runtime.file_modes import StartModes
from agentsup.daemon.runtime.roster import Roster
from agentsup.daemon.runtime.scripts import ScriptCheck
from agentsup.daemon.runtime.tokens import TokenRegistry
from agentsup.engines.registry import EngineRegistry
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.kit.log import get_logger
from agentsup.kit.pool import BoundedPool
from agentsup.kit.reaper import Reaper
from agentsup.mailbox import Mailbox
from agentsup.mailbox.mail import Subscriptions
from agentsup.mailbox.messages import MailboxLimits, RoleNow
from agentsup.mailbox.work import Handler
from agentsup.model.agent import AgentSpec
from agentsup.model.channel import Channel
from agentsup.model.control import CommandInfo
from agentsup.model.errors import ConfigError, ConfigErrors
from agentsup.model.hook import Approver
from agentsup.model.tool import Tool
from agentsup.observe import Redactor
from agentsup.store import Database
from agentsup.tasks import machine_zone

_log = get_logger(__name__)

LOG_FILE = "agentsup.log"
"""The name of the log file in the home's ``logs/``."""


class CurrentConfig:
    """The configuration in effect, for parts that read it whenever they need it."""

    def __init__(self, snapshot: ConfigSnapshot) -> None:
        self._snapshot = snapshot

    def __call__(self) -> ConfigSnapshot:
        return self._snapshot

    def apply(self, snapshot: ConfigSnapshot) -> None:
        """Put an edited configuration in effect."""
        self._snapshot = snapshot


@dataclass(frozen=True, slots=True)
class BootContext:
    """The home, its store, this boot, and what hosts and tests replace."""

    home: Home
    database: Database
    clock: Clock
    entropy: Entropy
    boot: boots.Boot
    endings: Mapping[str, str]
    """The reason of each child's last end in an earlier boot that nobody had asked for."""
    roster: Roster
    snapshot: ConfigSnapshot
    first_complaint: ConfigErrors | None
    tokens: TokenRegistry
    redactor: Redactor
    environ: Mapping[str, str]
    port: int | None = None
    start_modes: StartModes = field(default_factory=StartModes)
    """Modes in the home that were corrected at the start."""
    engines: EngineRegistry | None = None
    """Replaces the engines that come with agentsup; for hosts and tests."""
    channels: Mapping[str, Channel] | None = None
    approver: Approver | None = None
    """Replaces the part that decides whether a call is allowed; for hosts and tests."""
    role_now: RoleNow | None = None
    """Replaces the lookup of a person's current role (``[people]``); for hosts with their own
    people."""
    handler_of: Callable[[AgentSpec, Mailbox], Handler | None] = lambda spec, mailbox: None
    """Handles an agent's messages in place of its engine, for hosts; None: the engine does."""
    announce: Callable[[str], None] | None = None
    """Shows the link to the web page to the person who started the daemon, once it listens."""
    keep_lock: Callable[[], bool] = lambda: True
    """Restores the lock file if it is missing. False: the home itself is another directory now."""
    is_started_again: bool = False
    """Whether something starts the process again that ends with 42."""
    reaper: Reaper | None = None
    """Ends orphaned processes that no program of ours owns, in our own process as subreaper."""
    dropped_log_lines: Callable[[], int] = lambda: 0
    files: BoundedPool = field(default_factory=lambda: BoundedPool("files"))
    """The pool for work on files that agents can write."""
    config_files: ConfigFiles = field(default_factory=ConfigFiles)
    """Reads the files that people keep in the home."""
    scripts: ScriptCheck = field(default_factory=ScriptCheck)
    """Checks the scripts that agents name."""
    after_imports: Callable[[], None] = lambda: None
    """Called after a large library was loaded. The entry point passes ``gc.freeze``: a full
    collection over everything that is loaded would block the loop for tens of milliseconds."""
    current: CurrentConfig = field(init=False)
    """The configuration in effect, which is ``snapshot`` at first."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "current", CurrentConfig(self.snapshot))

    def spec_of(self, agent_id: str) -> AgentSpec | None:
        """The spec of an agent that is declared now, by its id."""
        return self.current().find(self.roster.name_of(agent_id))


async def redact_secrets(
    redactor: Redactor,
    snapshot: ConfigSnapshot,
    home: Path,
    environ: Mapping[str, str],
    files: ConfigFiles,
) -> None:
    """Register every secret that can be resolved with the redactor, so that no log has it."""

    def resolved() -> list[str]:
        found: list[str] = []
        for secret in snapshot.secrets():
            try:
                found.append(resolve(secret, base=home, environ=environ).reveal())
            except ConfigError:
                continue
        return found

    key = f"secrets {snapshot.content_hash}"
    try:
        redactor.add_all(await files.run(resolved, key=key, limit_s=NAMED_S))
    except OSError as error:
        _log.warning("secrets could not be read for redaction", reason=str(error))


def web_deps(
    boot_context: BootContext, offered: Callable[[str, str], Sequence[CommandInfo]]
) -> WebDependencies:
    """The dependencies of the web page; people and roles are the current ones."""
    current = boot_context.current

    def language(person: str) -> str:
        found = current().settings.people.get(person)
        return found.language if found is not None else ""

    logs = boot_context.snapshot.settings.log
    return WebDependencies(
        people=lambda: {
            name: person.level
            for name, person in current().settings.people.items()
            if not person.agents
        },
        operator_key=boot_context.tokens.operator_key,
        node_id=boot_context.boot.node_id,
        workspace=boot_context.home.workspace,
        files=boot_context.files,
        log_file=boot_context.home.logs / LOG_FILE if logs.file else None,
        offered=offered,
        language=language,
    )


def mailbox_of(
    boot_context: BootContext, role_now: RoleNow, tool_of: Callable[[str], Tool | None]
) -> Mailbox:
    """The mailbox of this boot, with grants of calls and subscriptions of the current roster.

    ``role_now`` gives people's rights, unless the host replaces it; ``tool_of`` finds a tool.
    """

    def zone_of_agent(agent_id: str) -> tzinfo:
        spec = boot_context.spec_of(agent_id)
        return ZoneInfo((spec.user_timezone if spec is not None else None) or machine_zone())

    return Mailbox(
        boot_context.database,
        boot_context.clock,
        boot_context.entropy,
        boot_id=boot_context.boot.boot_id,
        limits=_mailbox_limits(boot_context),
        role_now=boot_context.role_now or role_now,
        question_observers=(DecisionRecorder(tool_of, zone_of_agent),),
        message_observers=(Subscriptions(lambda: boot_context.roster.watchers),),
    )


def _mailbox_limits(boot_context: BootContext) -> MailboxLimits:
    """The bounds of the mailbox; those of one agent follow its current entry."""
    limits = boot_context.snapshot.settings.limits

    def queue_limit_of(agent_id: str) -> int | None:
        spec = boot_context.spec_of(agent_id)
        return spec.queue_limit if spec else None

    def slots_of(agent_id: str) -> int | None:
        spec = boot_context.spec_of(agent_id)
        return spec.slots.interactive if spec else None

    return MailboxLimits(
        max_depth=limits.depth,
        max_messages_per_root=limits.messages_per_root,
        max_body_bytes=limits.body_bytes,
        max_attempts=limits.attempts,
        max_crashes=limits.crashes,
        queue_limit_of=queue_limit_of,
        slots_of=slots_of,
    )


def hex_digits(entropy: Entropy) -> Callable[[int], str]:
    """Random hex digits for trace ids, from ``entropy``."""

    def digits(count: int) -> str:
        return "".join(f"{int(entropy.uniform(0, 16)) % 16:x}" for _ in range(count))

    return digits
