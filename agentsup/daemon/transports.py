"""What the daemon knows of each platform that bots talk on: which agents want one, and one life of it.

Nothing of a platform is imported before the first bot for it is wanted.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import zoneinfo
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from agentsup.channels.http import HttpPool
from agentsup.channels.inbox import Inbox
from agentsup.channels.matrix.errors import TokenRefused as MatrixRefused
from agentsup.channels.report import ChannelReport
from agentsup.channels.telegram.errors import TokenRefused as TelegramRefused
from agentsup.config.home import Home
from agentsup.config.secrets import resolve
from agentsup.daemon.people import People
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.kit.pool import BoundedPool
from agentsup.mailbox.mailbox import Mailbox
from agentsup.model.agent import AgentSpec, Secret
from agentsup.model.channel import Begin, Channel, Delivery, DeliveryOutcome, OutboxPart
from agentsup.model.control import Commands
from agentsup.model.errors import ConfigError
from agentsup.observe.live import LiveHub
from agentsup.store.database import Database
from agentsup.store.events import EventLog
from agentsup.supervision.spec import ChildContext

if TYPE_CHECKING:
    from agentsup.channels.matrix.life import MatrixChannel, MatrixDeps
    from agentsup.channels.matrix.outgoing import MatrixSettings
    from agentsup.channels.telegram.life import TelegramDeps
    from agentsup.channels.telegram.outgoing import TelegramSettings

__all__ = [
    "REFUSED",
    "BotLife",
    "ChannelServices",
    "Door",
    "MatrixTransport",
    "TelegramTransport",
    "Transport",
]

NOT_CONNECTED = "the bot is not connected"
"""Why a part waits; the same words as the channels themselves use, whose bots wake such parts."""
REFUSED = (TelegramRefused, MatrixRefused)
"""What ends a bot for which no further life helps."""
_ABSENT_S = 5.0
_SESSION_FILE = "matrix-session.json"


class Door:
    """What the relay holds for a platform; the channel behind it comes with the first bot."""

    in_pieces = True

    def __init__(self, name: str, *, idempotent: bool) -> None:
        self.name = name
        self.idempotent = idempotent
        self.channel: Channel | None = None

    async def deliver(self, part: OutboxPart, begin: Begin) -> Delivery:
        """Implements ``model.channel.Channel``."""
        if self.channel is None:
            return Delivery(
                DeliveryOutcome.RETRY, NOT_CONNECTED, retry_after_s=_ABSENT_S, is_free=True
            )
        return await self.channel.deliver(part, begin)


@dataclass(frozen=True, slots=True)
class ChannelServices:
    """What bots stand on."""

    home: Home
    environ: Mapping[str, str]
    database: Database
    mailbox: Mailbox
    inbox: Inbox
    commands: Commands
    events: EventLog
    live: LiveHub
    people: People
    files: BoundedPool
    """Where work on agents' workspaces is done."""
    tell: Callable[[str], Awaitable[None]]
    """Reaches the operator, where need be past the bot that has the trouble."""


@dataclass(frozen=True, slots=True)
class BotLife:
    """Whose life it is, and who hears how it fares."""

    agent_id: str
    spec: Callable[[], AgentSpec]
    report: Callable[[ChannelReport], None]


class Transport(ABC):
    """A platform with the bots of all agents on it."""

    name: ClassVar[str]
    title: ClassVar[str]
    idempotent: ClassVar[bool]
    module: ClassVar[str]
    """Where a bot's life is; imported with the first bot."""
    package: ClassVar[str]
    """The library that it needs, and ``remedy`` where it isn't there."""
    remedy: ClassVar[str]
    mend: ClassVar[str]
    """What an operator may change so that a refused bot is let in."""

    def __init__(
        self,
        *,
        clock: Clock,
        entropy: Entropy,
        services: Callable[[], ChannelServices],
        after_imports: Callable[[], None],
        pool: HttpPool,
    ) -> None:
        """``pool`` is the HTTP session of all bots, whatever they talk on."""
        self._pool = pool
        self.door = Door(self.name, idempotent=self.idempotent)
        self._clock = clock
        self._entropy = entropy
        self._services = services
        self._after_imports = after_imports
        self._life: Any = None
        self._loading = asyncio.Lock()

    @abstractmethod
    def wants(self, spec: AgentSpec) -> bool:
        """Whether the entry asks for a bot here and says which."""

    @abstractmethod
    def identity(self, spec: AgentSpec) -> tuple[object, ...]:
        """What a bot can't change while it lives."""

    @abstractmethod
    async def live(self, life: BotLife, ctx: ChildContext) -> None:
        """One life of a bot. Raises ``ConfigError`` or one of ``REFUSED`` where another life with
        the same entry has no use."""

    async def alone_with(self, agent_id: str, conversation: str) -> str:
        """See ``Channels.alone_with``."""
        return ""

    @abstractmethod
    def _channel(self, module: Any) -> Channel: ...

    async def _loaded(self) -> Any:
        """The module of a bot's life; with the first bot, what all of them share."""
        async with self._loading:
            if self._life is None:
                if importlib.util.find_spec(self.package) is None:
                    raise ConfigError(self.remedy)
                library = await asyncio.to_thread(
                    importlib.import_module, f"agentsup.channels.{self.name}.library"
                )
                await library.load()
                life = await asyncio.to_thread(importlib.import_module, self.module)
                self.door.channel = self._channel(life)
                self._after_imports()
                self._life = life
        return self._life

    async def _secret(self, secret: Secret | None) -> Secret | None:
        if secret is None:
            return None
        s = self._services()
        return await asyncio.to_thread(resolve, secret, base=s.home.root, environ=s.environ)


class TelegramTransport(Transport):
    """Telegram."""

    name = "telegram"
    title = "Telegram"
    idempotent = False
    module = "agentsup.channels.telegram.life"
    package = "telegram"
    remedy = "python-telegram-bot is not installed; install agentsup[telegram] and start again"
    mend = "A changed token"
    _http: Any = None

    def wants(self, spec: AgentSpec) -> bool:
        """Whether there is a token to talk with."""
        return self.name in spec.channels and spec.telegram_token is not None

    def identity(self, spec: AgentSpec) -> tuple[object, ...]:
        """Token, server, and how far back it answers."""
        return (spec.telegram_token, spec.telegram_base_url, spec.telegram_backlog_hours)

    async def live(self, life: BotLife, ctx: ChildContext) -> None:
        """Implements ``Transport.live``."""
        module = await self._loaded()
        token = await self._secret(life.spec().telegram_token)
        assert token is not None
        await module.TelegramBot(self._deps(life, token, module)).run(ctx.ready, ctx.draining)

    def _channel(self, module: Any) -> Channel:
        made: Channel = module.TelegramChannel()
        self._http = module.SharedHttp(pool=self._pool)
        return made

    def _deps(self, life: BotLife, token: Secret, module: Any) -> TelegramDeps:
        s, spec = self._services(), life.spec()
        workspace = s.home.workspace(spec.name)

        def settings() -> TelegramSettings:
            now = life.spec()
            made: TelegramSettings = module.TelegramSettings(
                workspace=workspace,
                files=s.files,
                long_as_file_pieces=now.telegram_file_after_pieces or 0,
                timezone=_zone(now),
            )
            return made

        made: TelegramDeps = module.TelegramDeps(
            agent_id=life.agent_id,
            agent_name=spec.name,
            workspace=workspace,
            files=s.files,
            token=token,
            spec=life.spec,
            database=s.database,
            mailbox=s.mailbox,
            inbox=s.inbox,
            commands=s.commands,
            events=s.events,
            live=s.live,
            clock=self._clock,
            entropy=self._entropy,
            channel=self.door.channel,
            http=self._http,
            people=s.people,
            report=life.report,
            tell=s.tell,
            settings=settings,
            catalogue=importlib.import_module("agentsup.catalogue").load(),
            limits=module.ReceiveLimits(max_age_s=spec.telegram_backlog_hours * 3600),
        )
        return made


class MatrixTransport(Transport):
    """Matrix."""

    name = "matrix"
    title = "Matrix"
    idempotent = True
    module = "agentsup.channels.matrix.life"
    package = "nio"
    remedy = "matrix-nio is not installed; install agentsup[matrix] and start again"
    mend = "A changed access token or password"
    _made: MatrixChannel | None = None

    def wants(self, spec: AgentSpec) -> bool:
        """Whether there is an account, a homeserver, and something to sign in with."""
        return self.name in spec.channels and spec.matrix.is_usable

    def identity(self, spec: AgentSpec) -> tuple[object, ...]:
        """The account, what it signs in with, and how far back it answers."""
        m = spec.matrix
        return (
            *(m.homeserver, m.user_id, m.password, m.access_token, m.device_id),
            m.backlog_hours,
        )

    async def live(self, life: BotLife, ctx: ChildContext) -> None:
        """Implements ``Transport.live``."""
        module = await self._loaded()
        m = life.spec().matrix
        account = module.Account(
            homeserver=m.homeserver,
            user_id=m.user_id,
            password=await self._secret(m.password),
            access_token=await self._secret(m.access_token),
            device_id=m.device_id or "",
        )
        await module.MatrixBot(self._deps(life, account, module)).run(ctx.ready, ctx.draining)

    async def alone_with(self, agent_id: str, conversation: str) -> str:
        """Implements ``Transport.alone_with``."""
        return await self._made.alone_with(agent_id, conversation) if self._made else ""

    def _channel(self, module: Any) -> Channel:
        made: MatrixChannel = module.MatrixChannel(self._clock)
        self._made = made
        return made

    def _deps(self, life: BotLife, account: Any, module: Any) -> MatrixDeps:
        s, spec = self._services(), life.spec()
        workspace = s.home.workspace(spec.name)

        def settings() -> MatrixSettings:
            now = life.spec()
            made: MatrixSettings = module.MatrixSettings(
                workspace=workspace,
                files=s.files,
                long_as_file_pieces=now.matrix.file_after_pieces or 0,
                timezone=_zone(now),
            )
            return made

        made: MatrixDeps = module.MatrixDeps(
            agent_id=life.agent_id,
            agent_name=spec.name,
            workspace=workspace,
            account=account,
            session_file=s.home.agent_dir(spec.name) / _SESSION_FILE,
            spec=life.spec,
            database=s.database,
            mailbox=s.mailbox,
            inbox=s.inbox,
            commands=s.commands,
            live=s.live,
            clock=self._clock,
            entropy=self._entropy,
            channel=self.door.channel,
            http=self._pool,
            people=s.people.matrix,
            report=life.report,
            tell=s.tell,
            settings=settings,
            limits=module.ReceiveLimits(max_age_s=spec.matrix.backlog_hours * 3600),
        )
        return made


def _zone(spec: AgentSpec) -> zoneinfo.ZoneInfo | None:
    return zoneinfo.ZoneInfo(spec.user_timezone) if spec.user_timezone else None
