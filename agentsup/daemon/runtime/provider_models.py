"""The models of an agent's provider: which there are, whether it has one, what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from agentsup.daemon.runtime.engines import DaemonEngines
from agentsup.engines import Prices
from agentsup.kit.log import get_logger
from agentsup.model.agent import AgentSpec
from agentsup.model.control import ModelPrice, OfferedModels
from agentsup.model.errors import Conflict, EngineFailed

if TYPE_CHECKING:
    from agentsup.engines.providers import ProviderClient

_log = get_logger(__name__)
_LIST_S = 6.0
"""Seconds that a person waits for a list in a chat."""


@dataclass(frozen=True, slots=True)
class ProviderModels:
    """Asks providers with the keys of agents. The models of coding agents are known to them alone."""

    engines: DaemonEngines
    prices: Prices = field(default_factory=Prices)

    async def offered(self, spec: AgentSpec) -> OfferedModels:
        """The models of the provider of ``spec``. Raises ``Conflict`` and ``EngineFailed``."""
        client, _ = self._client(spec)
        return OfferedModels(client.address, await client.models(limit_s=_LIST_S))

    async def check(self, spec: AgentSpec, model: str) -> str:
        """Raise ``Conflict``, with names like it, if the provider does not know ``model``. Returns
        why that could not be found out, or an empty string."""
        try:
            client, bare = self._client(replace(spec, model=model))
            known = await client.models(limit_s=_LIST_S)
        except Conflict:
            return ""
        except EngineFailed as error:
            _log.warning("model not checked", agent=spec.name, model=model, reason=error.message)
            return error.message
        from agentsup.engines.providers import has_model, unknown_model  # noqa: PLC0415 - see _client

        if known and not has_model(bare, known):
            refusal = unknown_model(bare, known, client.address).message
            raise Conflict(
                f"model of {spec.name} is not changed: {refusal}", agent=spec.name, field="model"
            )
        return ""

    async def prices_of(
        self, spec: AgentSpec, models: Sequence[str]
    ) -> tuple[ModelPrice | None, ...]:
        """The prices of these models at the provider of ``spec``; None where one is not known."""
        try:
            provider = self._client(spec)[0].provider
        except (Conflict, EngineFailed):
            return (None,) * len(models)
        if not provider.prices:
            free = None if provider.name == "compatible" else ModelPrice(0.0, 0.0)
            return (free,) * len(models)
        found = [await self.prices.of(provider.prices, each) for each in models]
        return tuple(ModelPrice(each.input, each.output) if each else None for each in found)

    # The client is loaded by its first use: with it comes what most homes never need.
    def _client(self, spec: AgentSpec) -> tuple[ProviderClient, str]:
        from agentsup.engines.providers import ProviderClient  # noqa: PLC0415 - see above

        return ProviderClient.by_settings(self.engines.of_provider(spec), self.engines.environ)
