"""The contexts that model servers of one's own serve, as the engine ``llm`` knows them.

A server is asked beside the turns, after one of them: then it has loaded the model. While nothing is
known, or the server does not tell, nothing follows from it.
"""

from __future__ import annotations

import asyncio
import importlib
from dataclasses import dataclass, field, replace

from agentsup.engines.llm.settings import LlmSettings
from agentsup.kit.clock import Clock, SystemClock
from agentsup.kit.tasks import TaskOwner
from agentsup.model.engine import ServedContext

AGAIN_S = 600.0
"""After how long a server is asked again: it may have been started anew with another limit."""
_MOST = 200
_CLOSE_S = 1.0


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
        # Loaded with the first question, as it is for lists of models.
        providers = await asyncio.to_thread(importlib.import_module, _PROVIDERS)
        endpoint = replace(settings.endpoint, dialect="openai")
        client = providers.ProviderClient(endpoint, settings.key_source)
        found = await providers.served_context(client, settings.model)
        if found is not None:
            self._known[settings.model_key] = found


_PROVIDERS = "agentsup.engines.providers"
