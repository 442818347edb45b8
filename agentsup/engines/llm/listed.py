"""What model servers list, as the engine ``llm`` needs it: the only model of a server where none is
named, and what there is in place of a model that a server does not know.
"""

from __future__ import annotations

import asyncio
import importlib
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Any, Final

from agentsup.engines.failures import ModelNotFound
from agentsup.engines.llm.settings import Endpoint, LlmSettings

_PROVIDERS: Final = "agentsup.engines.providers"
ASK_S: Final = 5.0
"""The longest time that a server is given for its list."""


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
    # Loaded with the first question: most homes name their model.
    providers = await asyncio.to_thread(importlib.import_module, _PROVIDERS)
    return providers.ProviderClient(settings.endpoint, settings.key_source)
