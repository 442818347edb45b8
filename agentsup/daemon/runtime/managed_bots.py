"""Bots that operators create through main's bot: offers, their tokens, and the entries of agents.

The steps are: bind the bot to an agent, keep its token in a file, name the file in the agent's entry,
end the offer and tell the operator. Each may be done again, so a kill between two costs nothing: the
update that began them is handled again.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from agentsup.catalogue import words
from agentsup.channels.core import NotSent, RequestRefused
from agentsup.channels.core.receiving import bot_offers
from agentsup.channels.core.sending import ChatNotices
from agentsup.config import (
    agents_bytes,
    parse_agents,
    replace_agents,
    resolve,
    with_entry,
    with_fields,
)
from agentsup.daemon.runtime.boot_context import BootContext
from agentsup.daemon.runtime.channels import Channels
from agentsup.daemon.runtime.people import People
from agentsup.daemon.runtime.reconcile import Reconciler, keep_secrets
from agentsup.kit import faults
from agentsup.kit.log import get_logger
from agentsup.model.agent import MAIN, AgentSpec
from agentsup.model.control import CommandButton
from agentsup.model.errors import (
    AgentsupError,
    ConfigError,
    ConfigErrors,
    Conflict,
    Forbidden,
    MayNotManageBots,
    NotFound,
    Refused,
)
from agentsup.model.managed_bots import OFFER_MS, BotOffer, CreatedBot
from agentsup.model.platforms import TELEGRAM
from agentsup.model.principal import Principal
from agentsup.model.secret import Secret
from agentsup.store import Tx

_log = get_logger(__name__)
_NAME_MAX: Final = 64
_USERNAME_MAX: Final = 32
_SUFFIX_CHARS: Final = 4
_MAIN_WAIT_S: Final = 30.0
"""How long a bot with a refused token waits for main's bot to connect."""


@dataclass(frozen=True, slots=True, eq=False)
class DaemonManagedBots:
    """Implements ``model.managed_bots.BotMaker`` and ``BotKeeper``."""

    boot_context: BootContext
    reconciler: Reconciler
    channels: Channels
    people: People
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One token and one edit at a time."""

    # -- operators ---------------------------------------------------------------------------------

    async def add(self, agent: str, description: str, by: Principal) -> None:
        _check(by)
        more = {"description": description} if description else {}
        async with self.lock:
            await self._edit(lambda text: with_entry(text, {"name": agent, **more}))
        _log.info("agent added", agent=agent, by=by.label)

    async def offer(self, agent: str, by: Principal, *, maker: int = 0) -> BotOffer:
        _check(by)
        context, say = self.boot_context, words(by.language)
        if self.reconciler.snapshot.find(agent) is None:
            await self.reconciler.reload()  # perhaps the file was edited just now
        if self.reconciler.snapshot.find(agent) is None:
            async with self.lock:
                await self._edit(lambda text: with_entry(text, {"name": agent}))
        spec = self.reconciler.snapshot.require(agent)
        if spec.telegram_token is not None:
            raise Conflict(say("bot.has_one", agent=spec.name))
        if self.reconciler.snapshot.specs[MAIN].telegram_token is None:
            raise Conflict(say("bot.no_main", agent=spec.name))
        me = await self._ask("getMe")
        manager = str(me.get("username") or "")
        if not me.get("can_manage_bots"):
            raise MayNotManageBots(say("bot.may_not", agent=spec.name, manager=manager))
        at, username = context.clock.now_ms(), self._username(spec.name)
        offer_id = await context.database.write(
            partial(bot_offers.offer_tx, agent=spec.name, username=username, maker=maker, at=at),
            name="bot.offer",
        )
        name = spec.called[:_NAME_MAX]
        return BotOffer(offer_id, spec.name, name, username, manager, at + OFFER_MS)

    async def assign(self, bot_id: int, agent: str, by: Principal) -> str:
        _check(by)
        async with self.lock:
            spec = self.reconciler.snapshot.require(agent)
            step = partial(bot_offers.give_tx, bot_id=bot_id, agent=spec.name)
            row = await self.boot_context.database.write(step, name="bot.give")
            if row is None or row.state != bot_offers.BOUND:
                raise NotFound(words(by.language)("bot.unknown", id=bot_id))
            return await self._finish(row, by.language, in_chat=False)

    # -- bots --------------------------------------------------------------------------------------

    async def seen(self, bot: CreatedBot, maker: int, language: str) -> None:
        context = self.boot_context
        async with self.lock:
            row = await context.database.read(
                lambda reader: bot_offers.of_bot(reader, bot.bot_id), name="bot.row"
            )
            known = await self._spec_with(bot.bot_id)
            if row is None and known is None:
                main = self.reconciler.snapshot.specs[MAIN]
                person = self.people(main, maker)
                if person is None or not person.is_operator:
                    _log.warning("a bot was created by nobody here", bot=bot.username, by=maker)
                    return
                step = partial(self._bind_tx, bot=bot, maker=maker, language=language)
                row = await context.database.write(step, name="bot.bind")
                faults.point("bot.bound")
            if row is not None and row.state == bot_offers.BOUND:
                await self._finish(row, language, in_chat=True)
            elif known is not None and not bot.is_new and await self._fresh_token(known):
                self.channels.renew(context.roster.entry(known.name).agent_id)

    async def renew_token(self, agent_id: str) -> bool:
        name = self.boot_context.roster.name_of(agent_id)
        spec = self.reconciler.snapshot.find(name)
        if spec is None or spec.is_main:
            return False
        try:
            async with asyncio.timeout(_MAIN_WAIT_S):
                while True:
                    try:
                        async with self.lock:
                            return await self._fresh_token(spec)
                    except NotSent:
                        await self.boot_context.clock.sleep(1.0)
        except (AgentsupError, TimeoutError) as error:
            _log.info("no new token", agent=name, why=str(error))
            return False

    # -- steps -------------------------------------------------------------------------------------

    def _bind_tx(self, tx: Tx, bot: CreatedBot, maker: int, language: str) -> bot_offers.BotRow:
        """Bind the bot to an offer, or ask in its creator's chat with main for which agent it is."""
        at, say = self.boot_context.clock.now_ms(), words(language)
        offers = bot_offers.open_for(tx, maker, at=at)
        row = bot_offers.bind_tx(tx, bot, maker, at=at)
        if row.state == bot_offers.ASKED:
            names = dict.fromkeys(each.agent for each in offers)
            rows = [
                [CommandButton(name, f"/agents bot {bot.bot_id} {name}", once=True, operator=True)]
                for name in names
            ]
            text = say("bot.which", bot=bot.username, id=bot.bot_id)
            self._tell_tx(tx, maker, text, rows)
        return row

    async def _finish(self, row: bot_offers.BotRow, language: str, *, in_chat: bool) -> str:
        """Give a bound bot to its agent, and say so; returns what was said. Raises a
        ``PlatformError`` if Telegram does not answer."""
        assert row.bot_id is not None
        say, facts = words(language), {"bot": row.username, "agent": row.agent, "id": row.bot_id}
        state = bot_offers.TAKEN
        try:
            await self._keep(row, await self._token(row.bot_id))
            text = say("bot.made", link=f"https://t.me/{row.username}?start=agentsup", **facts)
        except RequestRefused as error:
            state, text = bot_offers.REFUSED, say("bot.refused", why=error.description, **facts)
        except (ConfigError, ConfigErrors, Refused) as error:
            state, text = bot_offers.ASKED, say("bot.not_kept", why=str(error), **facts)
        bot_id = row.bot_id

        def step(tx: Tx) -> None:
            if bot_offers.end_tx(tx, bot_id, state) and in_chat:
                self._tell_tx(tx, row.maker, text, ())

        faults.point("bot.before_taken")
        await self.boot_context.database.write(step, name="bot.end")
        faults.point("bot.taken")
        _log.info("a bot was created", bot=row.username, agent=row.agent, state=state)
        return text

    async def _keep(self, row: bot_offers.BotRow, token: str) -> None:
        """Keep the token in a file, and let the agent use it. Raises ``ConfigError``,
        ``ConfigErrors`` and ``Refused``."""
        snapshot, context = self.reconciler.snapshot, self.boot_context
        spec, main = snapshot.require(row.agent), snapshot.specs[MAIN]
        name = f"{spec.name}-telegram.token"
        reference = f"file:{context.home.secrets.name}/{name}"
        current = await self._resolved(spec)
        is_other = bool(current) and not current.startswith(f"{row.bot_id}:")
        if is_other or spec.telegram_token not in (None, Secret(reference)):
            raise Conflict(f"{spec.name} has a telegram_token already")
        fields: dict[str, Any] = {"telegram_token": reference}
        if main.telegram_base_url not in (None, spec.telegram_base_url):
            fields["telegram_base_url"] = main.telegram_base_url
        if spec.transports and TELEGRAM.name not in spec.transports:
            fields["transports"] = [*spec.transports, TELEGRAM.name]
        if self.people(spec, row.maker) is None:
            fields["allowed_user_ids"] = [*spec.allowed_user_ids, row.maker]
        await self._edit(lambda text: with_fields(text, spec.name, fields), {name: token})

    async def _edit(
        self, change: Callable[[str], str], secrets: Mapping[str, str] | None = None
    ) -> None:
        """Keep the secrets, change agents.json if it stays right, and apply it. Raises
        ``ConfigError``, ``ConfigErrors`` and ``Refused``."""
        home = self.boot_context.home

        def write() -> None:
            keep_secrets(home.secrets, secrets or {})
            faults.point("bot.token_kept")
            old = agents_bytes(home)
            text = "[]\n" if old is None else old.decode("utf-8-sig")
            parse_agents(text.encode())
            new = change(text).encode()
            if new != old:
                self.reconciler.checked(home.agents_json.name, new)
                replace_agents(home, old, new)
            faults.point("bot.in_file")

        await self.reconciler.edit(home.agents_json.name, write)

    async def _fresh_token(self, spec: AgentSpec) -> bool:
        """Ask for the token of an agent's bot, and keep it in place of one that differs; whether it
        does. Raises a ``PlatformError``."""
        old, written = await self._resolved(spec), spec.telegram_token
        bot_id = old.partition(":")[0]
        if written is None or not bot_id.isdecimal():
            return False
        try:
            token = await self._token(int(bot_id))
        except RequestRefused as error:
            _log.info("a bot is not managed by main's", agent=spec.name, why=error.message)
            return False
        if token == old:
            return False
        folder = self.boot_context.home.secrets
        path = self.boot_context.home.root / written.written.removeprefix("file:")
        if not written.written.startswith("file:") or path.parent != folder:
            _log.warning(
                "the token of a bot was replaced; put the new one where telegram_token says",
                agent=spec.name,
                where=written.shown,
            )
            return False
        await self.reconciler.files.run(
            partial(keep_secrets, folder, {path.name: token}), key="bots"
        )
        _log.info("the token of a bot was replaced", agent=spec.name)
        return True

    async def _token(self, bot_id: int) -> str:
        """The token of a bot that was created through main's. Raises a ``PlatformError``."""
        token = str(await self._ask("getManagedBotToken", user_id=bot_id))
        self.boot_context.redactor.add(token)
        if not re.fullmatch(rf"{bot_id}:[A-Za-z0-9_-]+", token):
            raise RequestRefused(0, "the answer is no token of that bot")
        return token

    async def _ask(self, method: str, **fields: Any) -> Any:
        return await self.channels.ask(self._main_id, method, **fields)

    async def _spec_with(self, bot_id: int) -> AgentSpec | None:
        """The agent whose bot that is."""
        for spec in self.reconciler.snapshot.specs.values():
            if (await self._resolved(spec)).startswith(f"{bot_id}:"):
                return spec
        return None

    async def _resolved(self, spec: AgentSpec) -> str:
        """The token that an agent's bot would use now, or empty."""
        if spec.telegram_token is None:
            return ""
        base, environ = self.boot_context.home.root, self.boot_context.environ
        step = partial(resolve, spec.telegram_token, base=base, environ=environ)
        try:
            return (await self.reconciler.files.run(step, key="bots")).reveal()
        except (ConfigError, OSError):
            return ""

    def _tell_tx(
        self, tx: Tx, maker: int, text: str, rows: Sequence[Sequence[CommandButton]]
    ) -> None:
        context = self.boot_context
        notices = ChatNotices(self._main_id, TELEGRAM.name, context.clock, context.entropy)
        chat = str(maker)
        shown = {"buttons": notices.mint_tx(tx, chat, rows)} if rows else {"ends_keyboard": True}
        notices.add_tx(tx, chat, text, **shown)

    @property
    def _main_id(self) -> str:
        return self.boot_context.roster.entry(MAIN).agent_id

    def _username(self, agent: str) -> str:
        """A user name that is free, in all likelihood, and shows which offer was taken."""
        digest = hashlib.sha256(self.boot_context.entropy.token().encode()).hexdigest()
        ending = f"_{digest[:_SUFFIX_CHARS]}_bot"
        plain = re.sub(r"[^a-z0-9]+", "_", agent.casefold()).strip("_")
        named = plain if plain[:1].isalpha() else f"agent_{plain}"
        return named[: _USERNAME_MAX - len(ending)].rstrip("_") + ending


def _check(by: Principal) -> None:
    if not by.is_operator:
        raise Forbidden("only an operator adds agents and creates bots")
