"""The platforms that bots talk on: which agents want a bot there, and one life of a bot.

Nothing of a platform is imported before its first bot is wanted.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import zoneinfo
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from agentsup.channels.core import ChannelReport, NotSent
from agentsup.channels.core.receiving import Inbox
from agentsup.channels.core.sending import DeliverySettings
from agentsup.config import Home, resolve
from agentsup.daemon.runtime.people import People
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.kit.pool import BoundedPool
from agentsup.mailbox import Mailbox
from agentsup.model.agent import AgentSpec
from agentsup.model.channel import ABSENT_BOT, Begin, Channel, Delivery, OutboxPart
from agentsup.model.control import Commands
from agentsup.model.errors import ConfigError
from agentsup.model.managed_bots import BotKeeper
from agentsup.model.pairing import Asking
from agentsup.model.platforms import MATRIX, TELEGRAM, PlatformSpec
from agentsup.model.secret import Secret
from agentsup.observe import LiveHub
from agentsup.store import Database, EventLog
from agentsup.supervision import ChildContext

if TYPE_CHECKING:
    from agentsup.channels.core.sending import HttpPool
    from agentsup.channels.matrix import MatrixChannel
    from agentsup.channels.telegram import TelegramChannel


_SESSION_FILE = "matrix-session.json"


class ChannelProxy:
    """The relay's channel for a platform; it passes calls on once the first bot has loaded the real
    one."""

    in_pieces = True
    is_event = False

    def __init__(self, name: str, *, idempotent: bool) -> None:
        self.name = name
        self.idempotent = idempotent
        self.channel: Channel | None = None

    async def deliver(self, part: OutboxPart, begin: Begin) -> Delivery:
        """Implements ``model.channel.Channel``."""
        if self.channel is None:
            return ABSENT_BOT
        return await self.channel.deliver(part, begin)


@dataclass(frozen=True, slots=True)
class ChannelServices:
    """The daemon's services for bots."""

    home: Home
    environ: Mapping[str, str]
    database: Database
    clock: Clock
    entropy: Entropy
    mailbox: Mailbox
    inbox: Inbox
    commands: Commands
    events: EventLog
    live: LiveHub
    people: People
    files: BoundedPool
    """The pool for work in agents' workspaces."""
    tell: Callable[[str], Awaitable[None]]
    """Sends a text to the operator, past a bot that has failed itself."""
    after_imports: Callable[[], None]
    """Called after a library was loaded."""
    pairing: Asking
    bots: BotKeeper


@dataclass(frozen=True, slots=True)
class BotLife:
    """The agent and the current spec of one bot's life, and the callback for its reports."""

    agent_id: str
    spec: Callable[[], AgentSpec]
    report: Callable[[ChannelReport], None]


class Transport(ABC):
    """A platform with the bots of all agents on it."""

    platform: ClassVar[PlatformSpec]

    def __init__(
        self, services: Callable[[], ChannelServices], pool: Callable[[], HttpPool]
    ) -> None:
        """``pool`` gives the HTTP session of all bots on all platforms, once a library is loaded."""
        self._pool = pool
        self.name = self.platform.name
        self.proxy = ChannelProxy(self.name, idempotent=self.platform.is_idempotent)
        self._services = services
        self._life: Any = None
        self._loading = asyncio.Lock()

    @abstractmethod
    async def live(self, life: BotLife, ctx: ChildContext) -> None:
        """One life of a bot. Raises ``ConfigError`` or ``TokenRefused`` if another life with the
        same entry would fail too."""

    async def alone_with(self, agent_id: str, conversation: str) -> str:
        """See ``Channels.alone_with``."""
        return ""

    @abstractmethod
    def _channel(self, module: Any) -> Any:
        """Make the ``Channel`` of all bots; ``module`` is that of a bot's life."""

    async def _loaded(self) -> Any:
        """The module of a bot's life; the first call loads the library and makes the shared
        channel."""
        async with self._loading:
            if self._life is None:
                if self.platform.library:
                    await self._load_library()
                life = await asyncio.to_thread(
                    importlib.import_module, f"agentsup.channels.{self.name}.life"
                )
                self.proxy.channel = self._channel(life)
                self._services().after_imports()
                self._life = life
        return self._life

    async def _load_library(self) -> None:
        if importlib.util.find_spec(self.platform.library) is None:
            raise ConfigError(self.platform.missing_library)
        client = await asyncio.to_thread(
            importlib.import_module, f"agentsup.channels.{self.name}.client"
        )
        await client.library()

    def _parts(self, life: BotLife) -> dict[str, Any]:
        """The fields that a bot of every platform gets, by name."""
        s, spec = self._services(), life.spec()
        return {
            "agent_id": life.agent_id,
            "agent_name": spec.name,
            "workspace": s.home.workspace(spec.name),
            "spec": life.spec,
            "database": s.database,
            "mailbox": s.mailbox,
            "inbox": s.inbox,
            "commands": s.commands,
            "live": s.live,
            "clock": s.clock,
            "entropy": s.entropy,
            "channel": self.proxy.channel,
            "report": life.report,
            "tell": s.tell,
            "pairing": s.pairing,
            "bots": s.bots,
        }

    def _settings(
        self, life: BotLife, pieces: Callable[[AgentSpec], int | None]
    ) -> Callable[[], DeliverySettings]:
        """The settings of now for what a bot sends; ``pieces`` is the limit of its platform."""
        s = self._services()
        workspace = s.home.workspace(life.spec().name)

        def settings() -> DeliverySettings:
            spec = life.spec()
            return DeliverySettings(
                workspace=workspace,
                files=s.files,
                long_as_file_pieces=pieces(spec) or 0,
                timezone=zoneinfo.ZoneInfo(spec.user_timezone) if spec.user_timezone else None,
            )

        return settings

    async def _secret(self, secret: Secret | None) -> Secret | None:
        if secret is None:
            return None
        s = self._services()
        return await asyncio.to_thread(resolve, secret, base=s.home.root, environ=s.environ)


class TelegramTransport(Transport):
    """Telegram."""

    platform = TELEGRAM
    _http: Any = None
    _made: TelegramChannel | None = None

    async def live(self, life: BotLife, ctx: ChildContext) -> None:
        """Implements ``Transport.live``."""
        module = await self._loaded()
        token = await self._secret(life.spec().telegram_token)
        assert token is not None
        s, hours = self._services(), life.spec().telegram_backlog_hours
        deps = module.TelegramDeps(
            **self._parts(life),
            files=s.files,
            token=token,
            events=s.events,
            http=self._http,
            people=s.people,
            settings=self._settings(life, lambda now: now.telegram_file_after_pieces),
            catalogue=importlib.import_module("agentsup.catalogue").load(),
            limits=module.ReceiveLimits(max_age_s=hours * 3600),
        )
        await module.TelegramBot(deps).run(ctx.ready, ctx.draining)

    def _channel(self, module: Any) -> Any:
        self._http = module.SharedHttp(pool=self._pool())
        self._made = module.TelegramChannel()
        return self._made

    async def ask(self, agent_id: str, method: str, **fields: Any) -> Any:
        """Call a method that sends nothing, as the agent's bot; see ``TelegramChannel.ask``."""
        if self._made is None:
            raise NotSent("no bot is connected to Telegram now; try again in a moment")
        return await self._made.ask(agent_id, method, **fields)


class MatrixTransport(Transport):
    """Matrix."""

    platform = MATRIX
    _made: MatrixChannel | None = None

    async def live(self, life: BotLife, ctx: ChildContext) -> None:
        """Implements ``Transport.live``."""
        module = await self._loaded()
        m = life.spec().matrix
        account = module.BotAccount(
            homeserver=m.homeserver,
            user_id=m.user_id,
            password=await self._secret(m.password),
            access_token=await self._secret(m.access_token),
            device_id=m.device_id or "",
        )
        s, spec = self._services(), life.spec()
        deps = module.MatrixDeps(
            **self._parts(life),
            account=account,
            session_file=s.home.agent_dir(spec.name) / _SESSION_FILE,
            http=self._pool(),
            people=s.people.matrix,
            settings=self._settings(life, lambda now: now.matrix.file_after_pieces),
            limits=module.ReceiveLimits(max_age_s=spec.matrix.backlog_hours * 3600),
        )
        await module.MatrixBot(deps).run(ctx.ready, ctx.draining)

    async def alone_with(self, agent_id: str, conversation: str) -> str:
        """Implements ``Transport.alone_with``."""
        return await self._made.alone_with(agent_id, conversation) if self._made else ""

    def _channel(self, module: Any) -> Any:
        self._made = module.MatrixChannel(self._services().clock)
        return self._made


TRANSPORTS: Final[tuple[type[Transport], ...]] = (TelegramTransport, MatrixTransport)
"""One for each of ``model.platforms.PLATFORMS``, in that order."""
