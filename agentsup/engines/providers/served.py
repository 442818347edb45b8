"""The context in tokens that a server of one's own serves, and the remedy for too low a limit.

Servers start with less than their models can take: Ollama with 4,096 tokens, which the tools of an
agent fill before the first word. Hosted providers are not asked.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit

from agentsup.catalogue import Note
from agentsup.engines.prices import Prices
from agentsup.engines.providers.client import ModelAnswer, ProviderClient
from agentsup.model.engine import ServedContext
from agentsup.model.errors import EngineFailed

ENOUGH_TOKENS: Final = 16_384
ASK_S: Final = 5.0
"""The longest time that all questions to one server take."""
_WANTED: Final = 32_768
_MOST_TOKENS: Final = 100_000_000
_NAMES: Final = ("localhost", ".localhost", ".local", ".lan", ".home", ".internal", ".home.arpa")
_TAILNET: Final = ipaddress.IPv4Network("100.64.0.0/10")
_NUM_CTX: Final = re.compile(r"^num_ctx\s+\d+\s*$", re.MULTILINE | re.ASCII)


def is_own(base_url: str) -> bool:
    """Whether the address is on this machine or in a private network. No name is resolved."""
    try:
        host = (urlsplit(base_url).hostname or "").rstrip(".")
    except ValueError:
        return False
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        return bool(host) and ("." not in host or host.endswith(_NAMES))
    is_near = number.is_private or number.is_loopback or number in _TAILNET
    return is_near and not number.is_link_local and not number.is_unspecified


async def served_context(
    client: ProviderClient, model: str, *, limit_s: float = ASK_S
) -> ServedContext | None:
    """Ask the server of ``client`` for the context of ``model``; None if that can't be known."""
    if not is_own(client.address):
        return None
    root = client.address.removesuffix("/v1")
    at_root = replace(client, endpoint=replace(client.endpoint, base_url=root))
    with suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            for find in (_vllm, _ollama, _lm_studio, _llama_cpp):
                with suppress(EngineFailed):
                    if found := await find(at_root, model):
                        return found
    return None


async def _vllm(client: ProviderClient, model: str) -> ServedContext | None:
    document = await client.ask("GET", "/v1/models", None, ASK_S)
    row = _row(document.get("data"), model, "id")
    return _served(row.get("max_model_len"), "vllm")


async def _ollama(client: ProviderClient, model: str) -> ServedContext | None:
    """Only a model that is loaded is listed with its context."""
    document = await client.ask("GET", "/api/ps", None, ASK_S)
    row = _row(document.get("models"), model, "name")
    if not row:
        return None
    with suppress(EngineFailed):
        shown = await client.ask("POST", "/api/show", {"model": row["name"]}, ASK_S)
        if _NUM_CTX.search(str(shown.get("parameters"))):
            return _served(row.get("context_length"), "modelfile")
    return _served(row.get("context_length"), "ollama")


async def _lm_studio(client: ProviderClient, model: str) -> ServedContext | None:
    document = await client.ask("GET", "/api/v0/models", None, ASK_S)
    row = _row(document.get("data"), model, "id", lambda each: each.get("state") == "loaded")
    return _served(row.get("loaded_context_length"), "lm_studio")


async def _llama_cpp(client: ProviderClient, model: str) -> ServedContext | None:
    document = await client.ask("GET", "/props", None, ASK_S)
    settings = document.get("default_generation_settings")
    tokens = settings.get("n_ctx") if isinstance(settings, Mapping) else None
    return _served(tokens, "llama_cpp")


async def tried(client: ProviderClient, model: str, *, prices: Prices | None = None) -> ModelAnswer:
    """Try ``model`` (see ``ProviderClient.try_model``), and find out what context it is served
    with: servers load a model by its first request."""
    answer = await client.try_model(model, prices=prices)
    return replace(answer, context=await served_context(client, model))


def _served(tokens: Any, server: str) -> ServedContext | None:
    if not isinstance(tokens, int) or isinstance(tokens, bool) or not 0 < tokens < _MOST_TOKENS:
        return None
    if tokens >= ENOUGH_TOKENS:
        return ServedContext(tokens)
    return ServedContext(tokens, Note.of(f"context.{server}", tokens=tokens, wanted=_WANTED))


def _row(
    rows: Any,
    model: str,
    key: str,
    may: Callable[[Mapping[str, Any]], bool] = bool,
) -> Mapping[str, Any]:
    """The row of ``model``, or an empty one."""
    return next(
        (
            each
            for each in _rows(rows, key, may)
            if each[key].removesuffix(":latest") == model or each[key] == model
        ),
        {},
    )


def _rows(
    rows: Any, key: str, may: Callable[[Mapping[str, Any]], bool]
) -> Iterator[Mapping[str, Any]]:
    for each in rows if isinstance(rows, list) else ():
        if isinstance(each, Mapping) and isinstance(each.get(key), str) and may(each):
            yield each
