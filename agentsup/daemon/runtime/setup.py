"""Sets up a model and main's bot for operators in the page: the steps of ``agentsup setup``.

A key is kept in a file that only its owner reads, and the settings name that file. It is in no log
and in no answer. The client of providers is loaded by its first use.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shutil
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import agentsup.engines.providers as engine_providers
from agentsup.catalogue import words
from agentsup.config import Home, with_settings
from agentsup.daemon.runtime.boot_context import BootContext
from agentsup.daemon.runtime.engines import DaemonEngines
from agentsup.daemon.runtime.people import plan_edit
from agentsup.daemon.runtime.reconcile import Reconciler
from agentsup.engines import Prices
from agentsup.engines.programs import PROGRAMS, sign_in_of
from agentsup.engines.registry import has_llm_extra
from agentsup.kit.keeping import restarted_by
from agentsup.kit.log import get_logger
from agentsup.model.agent import MAIN
from agentsup.model.control import OfferedModels
from agentsup.model.errors import (
    BadRequest,
    Conflict,
    EngineFailed,
    Forbidden,
    NotFound,
)
from agentsup.model.pairing import Stranger
from agentsup.model.platforms import TELEGRAM
from agentsup.model.principal import PersonRole, Principal
from agentsup.model.secret import Secret
from agentsup.model.setup import (
    BotDraft,
    ModelDraft,
    OfferedProgram,
    OfferedProvider,
    RestartInfo,
    TriedModel,
)

_log = get_logger(__name__)
_KEY: Final = re.compile(r"[\x21-\x7e]{1,4096}")
_TOKEN: Final = re.compile(r"\d{3,20}:[A-Za-z0-9_-]{20,100}")
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_ADDRESS: Final = re.compile(r"https?://[^\s/?#@]+(/[^\s?#]*)?")
Tables = Mapping[str, Mapping[str, Any]]
"""Tables of config.toml, and the keys to set in each."""
AskBot = Callable[[Secret, str], Awaitable[str]]
"""Asks the Bot API at an address for the user name of a token's bot. Raises ``AgentsupError``."""
_CALL_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class _SignedIn:
    """A wanted model with the client that asks for it. ``reference`` is what the files say about
    the key; empty if there is none, or one that has no file yet."""

    client: engine_providers.ProviderClient
    provider: engine_providers.Provider
    reference: str


@dataclass(frozen=True, slots=True, eq=False)
class DaemonSetup:
    """Implements ``model.setup.Setup``."""

    boot_context: BootContext
    reconciler: Reconciler
    engines: DaemonEngines
    prices: Prices
    ask_bot: AskBot

    def providers(self, by: Principal) -> tuple[OfferedProvider, ...]:
        _check(by)
        return tuple(
            OfferedProvider(
                each.name,
                each.title,
                each.base_url,
                each.needs_key,
                each.keys_at,
                bool(self._known_key(each, each.base_url)[0]),
            )
            for each in engine_providers.PROVIDERS.values()
        )

    async def programs(self, by: Principal) -> tuple[OfferedProgram, ...]:
        _check(by)
        return await self.reconciler.files.run(self._installed, key="setup")

    async def use_program(self, name: str, by: Principal) -> tuple[str, ...]:
        if name not in {each.name for each in await self.programs(by)}:
            raise NotFound("there is no coding agent of that name here; install it first")
        await self._edit({"agent_defaults": {"engine": name}}, {})
        _log.info("coding agent set up", engine=name, by=by.label)
        specs = self.reconciler.snapshot.specs.values()
        return tuple(spec.name for spec in specs if spec.engine != name)

    async def restart_info(self, by: Principal) -> RestartInfo:
        _check(by)
        home, environ = self.boot_context.home, self.boot_context.environ
        found = await self.reconciler.files.run(
            lambda: restarted_by(home.keeper, environ), key="setup"
        )
        option = "" if home == Home.resolve(None, environ) else f"--home {home.root} "
        return RestartInfo(found, f"agentsup {option}service install")

    async def add_operator(self, person: str, telegram_id: int | None, by: Principal) -> None:
        _check(by)
        name = _person_of(person)
        if not name:
            raise BadRequest("what is your name here?", field="person")
        if telegram_id is None:
            if name in self.reconciler.snapshot.settings.people:
                raise Conflict(f"{name} is there already")
            await self._edit({f"people.{name}": {"role": "operator"}}, {})
        else:
            await self._edit(self._owner(name, telegram_id, by), {})
        _log.info("operator added", person=name, by=by.label)

    async def models(self, wanted: ModelDraft, by: Principal) -> OfferedModels:
        _check(by)
        client = self._sign_in(wanted).client
        return OfferedModels(client.address, await client.models())

    async def try_model(self, wanted: ModelDraft, by: Principal) -> TriedModel:
        _check(by)
        client, model = self._sign_in(wanted).client, _model_of(wanted)
        found = await engine_providers.tried(client, model, prices=self.prices)
        return TriedModel(
            found.model,
            found.input_tokens,
            found.output_tokens,
            found.seconds,
            found.usd,
            words(by.language).translated(found.context.problem) if found.context else "",
        )

    async def use_model(self, wanted: ModelDraft, by: Principal) -> None:
        _check(by)
        if not has_llm_extra():
            raise Conflict(
                "the engine llm is not installed: pip install 'agentsup[llm]', then restart"
            )
        signed, model = self._sign_in(wanted), _model_of(wanted)
        known = await signed.client.models()
        if known and not engine_providers.has_model(model, known):
            raise engine_providers.unknown_model(model, known, signed.client.address)
        reference, files = signed.reference, {}
        if signed.client.key and not reference:
            name = f"{signed.provider.name}.key"
            reference, files = (
                f"file:{self.boot_context.home.secrets.name}/{name}",
                {name: signed.client.key},
            )
        options = {"base_url": signed.client.address, "api_key": reference}
        values = {"model": model, "provider": signed.provider.dialect, "engine_options": options}
        if self.reconciler.snapshot.specs[MAIN].engine in PROGRAMS:
            values["engine"] = "llm"
        await self._edit({"agent_defaults": values}, files)
        _log.info("model set up", provider=signed.provider.name, model=model, by=by.label)

    async def use_bot(self, wanted: BotDraft, by: Principal) -> str:
        _check(by)
        token = _TOKEN.fullmatch(wanted.token.strip())
        if token is None:
            raise BadRequest("this is no bot token; it looks like 123456789:AAE…", field="token")
        person = _person_of(wanted.person)
        if bool(person) != (wanted.telegram_id is not None):
            raise BadRequest("a name and a Telegram id belong together", field="person")
        main = self.reconciler.snapshot.specs[MAIN]
        username = await self.ask_bot(Secret(token[0]), main.telegram_base_url or "")
        name = "main-telegram.token"
        reference = f"file:{self.boot_context.home.secrets.name}/{name}"
        tables: dict[str, Mapping[str, Any]] = {"main": {"telegram_token": reference}}
        if wanted.telegram_id is not None:
            tables.update(self._owner(person, wanted.telegram_id, by))
        await self._edit(tables, {name: token[0]})
        _log.info("bot set up", bot=username, by=by.label)
        return username

    # -- steps -------------------------------------------------------------------------------------

    def _installed(self) -> tuple[OfferedProgram, ...]:
        """The coding agents that are installed. Blocks on the disk."""
        environ, found = self.engines.environ, []
        for name, preset in PROGRAMS.items():
            if shutil.which(preset.program, path=environ.get("PATH", "")):
                by = sign_in_of(preset, environ, os.path.isfile)
                found.append(
                    OfferedProgram(name, preset.title, str(by), "" if by else preset.sign_in)
                )
        return tuple(found)

    def _owner(self, person: str, telegram_id: int, by: Principal) -> Tables:
        """The edit that makes somebody with that Telegram id an operator."""
        snapshot = self.reconciler.snapshot
        role = None if person in snapshot.settings.people else PersonRole.OPERATOR
        owner = Stranger("telegram", str(telegram_id), person, "")
        return dict(plan_edit(snapshot, owner, MAIN, by, role=role, name=person).tables)

    def _sign_in(self, wanted: ModelDraft) -> _SignedIn:
        provider = engine_providers.PROVIDERS.get(wanted.provider)
        if provider is None:
            raise BadRequest(
                f"there is no provider of that name, only {', '.join(engine_providers.PROVIDERS)}",
                field="provider",
            )
        address = (wanted.base_url.strip() or provider.base_url).rstrip("/")
        if not _ADDRESS.fullmatch(address):
            raise BadRequest(
                "an address looks like http://10.0.0.5:8000/v1, without a name or a key in it",
                field="base_url",
            )
        key, reference = wanted.key.strip().strip("\"'"), ""
        if not key:
            key, reference = self._known_key(provider, address)
        elif not _KEY.fullmatch(key):
            raise BadRequest(
                "this is no key: it has spaces or characters that keys don't have", field="key"
            )
        if provider.needs_key and not key:
            raise BadRequest(f"{provider.title} needs a key", field="key")
        return _SignedIn(
            engine_providers.ProviderClient.to(provider, address, key, reference),
            provider,
            reference,
        )

    def _known_key(self, provider: engine_providers.Provider, address: str) -> tuple[str, str]:
        """The key that the daemon has for that address, with the reference to it; or empty texts.
        A key is never sent to another address than the one that it belongs to."""
        if provider.key_name and address == provider.base_url:
            found = self.engines.environ.get(provider.key_name, "")
            if found:
                return found, f"env:{provider.key_name}"
        spec = self.reconciler.snapshot.specs[MAIN]
        written = spec.engine_options.get("api_key")
        if not isinstance(written, Secret) or not written.is_reference:
            return "", ""
        try:
            client, _ = engine_providers.ProviderClient.by_settings(
                self.engines.of_provider(spec), self.engines.environ
            )
        except (Conflict, EngineFailed):
            return "", ""
        return (client.key, written.written) if client.address == address else ("", "")

    async def _edit(self, tables: Tables, secrets: Mapping[str, str]) -> None:
        """Keep the secrets, and set the tables in config.toml. Raises what
        ``Reconciler.edit_settings`` raises."""

        def change(text: str) -> str:
            for table, values in tables.items():
                text = with_settings(text, table, values)
            return text

        await self.reconciler.edit_settings(change, secrets=secrets)


def _check(by: Principal) -> None:
    if not by.is_operator:
        raise Forbidden("only an operator sets up models and bots")


def _person_of(text: str) -> str:
    """A name for [people], or empty. Raises ``BadRequest``."""
    person = text.strip().casefold()
    if person and not _NAME.fullmatch(person):
        raise BadRequest("a person's name here has small letters, digits, - and _", field="person")
    return person


def _model_of(wanted: ModelDraft) -> str:
    model = wanted.model.strip()
    if not model:
        raise BadRequest("which model?", field="model")
    return model


async def ask_bot(token: Secret, base_url: str) -> str:
    """The user name of the token's bot. Raises ``AgentsupError`` that says what to do."""
    if importlib.util.find_spec(TELEGRAM.library) is None:
        raise Conflict(TELEGRAM.missing_library)
    # As in transports: a home without a bot loads nothing of this.
    module: Any = importlib.import_module("agentsup.channels.telegram.client")
    await module.library()
    http = module.SharedHttp()
    client = module.TelegramClient(token, base_url, http=http)
    try:
        me = await client.call("getMe", timeout_s=_CALL_S)
    finally:
        await client.close()
        await http.close()
    return str(me.get("username") or "?")
