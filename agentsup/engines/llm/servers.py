"""Facts that model servers report to the engine ``llm``: the size of the context, and the name of
the only model.

A server is asked for the context in the background, after a turn: by then it has loaded the model.
Without an answer nothing is assumed.
"""

from __future__ import annotations

import asyncio
import importlib
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Any, Final

from agentsup.engines.failures import ModelNotFound
from agentsup.engines.llm.settings import Endpoint, LlmSettings
from agentsup.kit.clock import Clock, SystemClock
from agentsup.kit.tasks import TaskOwner
from agentsup.model.engine import ServedContext

AGAIN_S: Final = 600.0
"""After how long a server is asked again: it may have been started anew with another limit."""
ASK_S: Final = 5.0
"""The longest time that a server is given for its list of models."""
_MOST: Final = 200
_CLOSE_S: Final = 1.0


@dataclass(slots=True, eq=False)
class ServedContexts:
    """The known context of each model of each endpoint."""

    clock: Clock = field(default_factory=SystemClock)
    _known: dict[tuple[str, str], ServedContext] = field(init=False, default_factory=dict)
    _asked_at: dict[tuple[str, str], float] = field(init=False, default_factory=dict)
    _owner: TaskOwner = field(init=False, default_factory=lambda: TaskOwner("served contexts"))

    def of(self, settings: LlmSettings) -> ServedContext | None:
        """The known context of that model."""
        return self._known.get(settings.model_key)

    def ask(self, settings: LlmSettings) -> None:
        """Ask the server in the background, unless it was asked a short while ago."""
        key, now_s = settings.model_key, self.clock.monotonic()
        is_early = now_s < self._asked_at.get(key, -AGAIN_S) + AGAIN_S
        if not settings.endpoint.base_url or is_early:
            return
        if len(self._asked_at) >= _MOST:
            self._asked_at.clear()
            self._known.clear()
        self._asked_at[key] = now_s
        self._owner.spawn(self._find(settings), name=f"context:{settings.model}")

    async def close(self) -> None:
        """End what still asks."""
        owner, self._owner = self._owner, TaskOwner("served contexts")
        await owner.close(_CLOSE_S)

    async def _find(self, settings: LlmSettings) -> None:
        providers = await _providers()
        endpoint = replace(settings.endpoint, dialect="openai")
        client = providers.ProviderClient(endpoint, settings.key_source)
        found = await providers.served_context(client, settings.model)
        if found is not None:
            self._known[settings.model_key] = found


@dataclass(slots=True, eq=False)
class ListedModels:
    """The only models of servers. A server that has one is asked once; one that has not, with each
    turn that fails for it: a model may have been added."""

    _only: dict[Endpoint, str] = field(init=False, default_factory=dict)
    _locks: dict[Endpoint, asyncio.Lock] = field(
        init=False, default_factory=lambda: defaultdict(asyncio.Lock)
    )

    def known(self, settings: LlmSettings) -> LlmSettings:
        """``settings`` with the model, as far as it is known. Asks nobody."""
        return replace(settings, model=settings.model or self._only.get(settings.endpoint, ""))

    async def named(self, settings: LlmSettings) -> LlmSettings:
        """``settings`` with a model: the only one of the server, if none is named. Raises
        ``EngineFailed``: see ``ProviderClient.only_model``."""
        async with self._locks[settings.endpoint]:
            if not self.known(settings).model:
                client = await _client(settings)
                self._only[settings.endpoint] = str(await client.only_model(limit_s=ASK_S))
        return self.known(settings)

    async def instead(self, settings: LlmSettings, refused: ModelNotFound) -> Exception:
        """``refused``, or the failure that names the models which the server has."""
        client = await _client(settings)
        found: Exception = await client.unknown(
            settings.model, refused, limit_s=ASK_S, in_chat=True
        )
        return found


async def _client(settings: LlmSettings) -> Any:
    return (await _providers()).ProviderClient(settings.endpoint, settings.key_source)


async def _providers() -> Any:
    # Loaded, in a thread, with the first question: most homes name their model.
    return await asyncio.to_thread(importlib.import_module, "agentsup.engines.providers")
