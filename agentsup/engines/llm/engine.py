"""The engine object: imports the model library once, and shares clients between sessions."""

from __future__ import annotations

import asyncio
import importlib
import os
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from agentsup.engines.failures import ExtraMissing
from agentsup.engines.llm.servers import ListedModels, ServedContexts
from agentsup.engines.llm.settings import Dialect, LlmSettings, read_settings
from agentsup.kit.outbound.tls import context
from agentsup.model.engine import (
    EngineCaps,
    EngineHost,
    EngineSession,
    EngineSpec,
    RefusedTool,
    ServedContext,
)
from agentsup.model.errors import EngineFailed

if TYPE_CHECKING:
    from agentsup.engines.llm.answers import KnownModels
    from agentsup.engines.llm.client import Clients

_EXTRAS: Mapping[Dialect, str] = {"openai": "llm", "anthropic": "anthropic"}


class LlmEngine:
    """Engine ``llm``. Options: see ``settings.LlmOptions``; ``env`` is the daemon's environment."""

    name = "llm"
    caps = EngineCaps(
        streaming=True,
        tools=True,
        suspend=True,
        usage=True,
        state_is_history=True,
        only_thinks=True,
        may_not_report=True,
        pictures=True,
    )

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self._contexts = ServedContexts()
        self._listed = ListedModels()
        self.caps = replace(
            self.caps,
            served=self._served,
            refused=self._refused,
            only_model=lambda spec: known.model if (known := self._settings(spec)) else "",
            find_model=self._find_model,
        )
        self._importing = asyncio.Lock()
        self._clients: Clients | None = None
        self._known: KnownModels | None = None

    async def open(self, spec: EngineSpec, host: EngineHost) -> EngineSession:
        """Open a session for one turn.

        Raises ``NotConfigured`` or ``ExtraMissing``, each with the remedy.
        """
        settings = await self._listed.named(read_settings(spec, self._env))
        tls = await self._load(settings.endpoint.dialect)
        # Cheap now: the modules are loaded.
        client = importlib.import_module("agentsup.engines.llm.client")
        session = importlib.import_module("agentsup.engines.llm.session")
        if self._clients is None:
            self._clients, self._known = client.Clients(tls), session.KnownModels()
        opened: EngineSession = session.LlmSession(
            self._clients.model(settings),
            settings,
            host,
            self._known,
            max_steps=spec.max_steps,
            on_close=lambda: self._contexts.ask(settings),
            instead=partial(self._listed.instead, settings),
        )
        return opened

    def _refused(self, spec: EngineSpec) -> Iterable[RefusedTool]:
        settings = self._settings(spec) if self._known is not None else None
        if self._known is None or settings is None:
            return ()
        return tuple(self._known.refused_of(settings.model_key).values())

    def _served(self, spec: EngineSpec) -> ServedContext | None:
        settings = self._settings(spec)
        return self._contexts.of(settings) if settings is not None else None

    def _settings(self, spec: EngineSpec) -> LlmSettings | None:
        """The settings with the model as far as it is known; None if something is missing."""
        try:
            return self._listed.known(read_settings(spec, self._env))
        except EngineFailed:
            return None

    async def _find_model(self, spec: EngineSpec) -> None:
        await self._listed.named(read_settings(spec, self._env))

    async def close(self) -> None:
        """Close all connections to providers."""
        await self._contexts.close()
        clients, self._clients = self._clients, None
        if clients is not None:
            await clients.close()

    async def _load(self, dialect: Dialect) -> ssl.SSLContext:
        """Import the libraries in a thread, one at a time; return what their clients trust."""
        async with self._importing:
            try:
                return await asyncio.to_thread(_import, dialect)
            except ImportError as error:
                raise ExtraMissing.of(self.name, _EXTRAS[dialect], error) from error


def _import(dialect: Dialect) -> ssl.SSLContext:
    os.environ.setdefault("PYDANTIC_AI_NO_BANNER", "1")
    for module in ("client", "session", f"{dialect}_client"):
        importlib.import_module(f"agentsup.engines.llm.{module}")
    return context()
