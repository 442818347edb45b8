"""What exists before anything is built, and the values that the parts are made from."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from agentsup.api.ports import WebDeps
from agentsup.api.server import ApiServer
from agentsup.channels.console import ConsoleChannel
from agentsup.channels.web import WebChannel
from agentsup.config.files import ConfigFiles
from agentsup.config.home import Home
from agentsup.config.reading import NAMED_S
from agentsup.config.secrets import resolve
from agentsup.config.snapshot import ConfigSnapshot
from agentsup.daemon import boot as boots
from agentsup.daemon.modes import ModeKeeper, StartModes
from agentsup.daemon.recorder import Recorder
from agentsup.daemon.resources import ResourceKeeper
from agentsup.daemon.roster import Roster
from agentsup.daemon.tokens import TokenBook
from agentsup.engines.registry import EngineRegistry
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.kit.pool import BoundedPool
from agentsup.kit.reaper import Reaper
from agentsup.mailbox.mailbox import Mailbox, MailboxLimits
from agentsup.mailbox.pump import Handler
from agentsup.model.agent import AgentSpec
from agentsup.model.channel import Channel
from agentsup.model.control import CommandInfo
from agentsup.model.errors import ConfigError, ConfigErrors
from agentsup.model.hook import Approver
from agentsup.observe.logging import get_logger
from agentsup.observe.redact import Redactor
from agentsup.store.database import Database

_log = get_logger(__name__)

LOG_FILE = "agentsup.log"
"""In the home's `logs/`."""


@dataclass(frozen=True, slots=True)
class Ground:
    """The home, its store, this boot."""

    home: Home
    database: Database
    clock: Clock
    entropy: Entropy
    boot: boots.Boot
    endings: dict[str, list[boots.Ending]]
    roster: Roster
    snapshot: ConfigSnapshot
    first_complaint: ConfigErrors | None
    tokens: TokenBook
    redactor: Redactor
    environ: Mapping[str, str]
    port: int | None = None
    start_modes: StartModes = field(default_factory=StartModes)
    """What of the home's modes was put right at the start."""
    engines: EngineRegistry | None = None
    """Replaces the engines that come with agentsup; for hosts and tests."""
    channels: Mapping[str, Channel] | None = None
    approver: Approver | None = None
    """Replaces who says whether a call may happen; for hosts and tests."""
    handler_of: Callable[[AgentSpec, Mailbox], Handler | None] = lambda spec, mailbox: None
    """What works on an agent's messages in place of its engine, for hosts; None: the engine does."""
    announce: Callable[[str], None] | None = None
    """Shows whoever started the daemon the link to the web page, once it listens."""
    keep_lock: Callable[[], bool] = lambda: True
    """Puts the lock's file back where it is gone; False: the home itself is another directory now."""
    reaper: Reaper | None = None
    """Ends processes that belong to no program of ours, in a process of our own to which they fall."""
    dropped_log_lines: Callable[[], int] = lambda: 0
    files: BoundedPool = field(default_factory=lambda: BoundedPool("files"))
    """Where the daemon works on what agents can write."""
    config_files: ConfigFiles = field(default_factory=ConfigFiles)
    """Reads what people keep in the home."""
    resources: ResourceKeeper = field(default_factory=ResourceKeeper)
    """Keeps the limits and the priority that this process has now."""
    after_imports: Callable[[], None] = lambda: None
    """Called when a large library was loaded. A process of our own freezes it: a full collection
    among all that is loaded would hold up the loop for tens of milliseconds."""

    def keepers(
        self, tell: Callable[[str], Awaitable[None]]
    ) -> Mapping[str, Callable[[], Awaitable[None]]]:
        """What puts right what other programs changed, by name; ``tell`` reaches an operator."""
        modes = ModeKeeper(
            self.home,
            self.tokens,
            self.entropy,
            self.redactor,
            tell,
            self.start_modes,
            self.config_files,
        )
        return {"modes": modes.look, "resources": partial(self.resources.look, tell)}


async def redact_secrets(
    redactor: Redactor,
    snapshot: ConfigSnapshot,
    home: Path,
    environ: Mapping[str, str],
    files: ConfigFiles,
) -> None:
    """Let the log know every secret that can be resolved, so that it never shows one."""

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


def own_channels() -> dict[str, Channel]:
    """Channels that need no platform; their clients read what is stored."""
    return {ConsoleChannel.name: ConsoleChannel(), WebChannel.name: WebChannel()}


def web_deps(
    ground: Ground,
    current: Callable[[], ConfigSnapshot],
    offered: Callable[[str, str], Sequence[CommandInfo]],
) -> WebDeps:
    """What the web page is made from; people and roles are those of the moment."""

    def language(person: str) -> str:
        found = current().settings.people.get(person)
        return found.language if found is not None else ""

    logs = ground.snapshot.settings.log
    return WebDeps(
        database=ground.database,
        people=lambda: {n: person.level for n, person in current().settings.people.items()},
        operator_key=ground.tokens.operator_key,
        node_id=ground.boot.node_id,
        workspace=ground.home.workspace,
        files=ground.files,
        log_file=ground.home.logs / LOG_FILE if logs.file else None,
        offered=offered,
        language=language,
    )


async def tell_address(ground: Ground, recorder: Recorder, api: ApiServer) -> None:
    """Say where the daemon listens: to the command line, and to whoever watches its start."""
    await recorder.write_address(ground.home.daemon_json, api.url)
    if ground.announce is not None:
        ground.announce(await api.one_time_link())


def mailbox_limits(ground: Ground, current: Callable[[], ConfigSnapshot]) -> MailboxLimits:
    """The bounds of the mailbox; those of one agent follow its entry as it is now."""
    limits = ground.snapshot.settings.limits

    def spec_of(agent_id: str) -> AgentSpec | None:
        return current().find(ground.roster.name_of(agent_id))

    def queue_limit_of(agent_id: str) -> int | None:
        spec = spec_of(agent_id)
        return spec.queue_limit if spec else None

    def slots_of(agent_id: str) -> int | None:
        spec = spec_of(agent_id)
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
    """Random hex digits for trace ids, from the one source of chance."""

    def digits(count: int) -> str:
        return "".join(f"{int(entropy.uniform(0, 16)) % 16:x}" for _ in range(count))

    return digits
