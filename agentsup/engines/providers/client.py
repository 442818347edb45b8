"""Asks a provider which models it has, and whether one of them answers.

Errors are those of engines (``engines.failures``), each with what to do. No error shows the key.
"""

from __future__ import annotations

import asyncio
import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any, Final

import aiohttp

from agentsup.engines import failures
from agentsup.engines.llm.settings import NO_KEY, Endpoint, read_settings
from agentsup.engines.prices import Prices
from agentsup.engines.providers.catalogue import Provider, provider_at
from agentsup.kit.clock import SystemClock
from agentsup.kit.compute import compute
from agentsup.kit.outbound import tls
from agentsup.kit.outbound.limits import MIB, AnswerLimits, LimitExceeded
from agentsup.kit.outbound.proxy import ProxyUnusable
from agentsup.kit.terminal import clean
from agentsup.model.engine import EngineSpec, ServedContext
from agentsup.model.errors import EngineFailed

LIST_S: Final = 10.0
TEST_S: Final = 60.0
MOST_MODELS: Final = 5000
_QUOTE_CHARS: Final = 200
_NAME_CHARS: Final = 200
_FEW: Final = 8
_ANTHROPIC_VERSION: Final = "2023-06-01"
_ANSWER_TOKENS: Final = 512
_ASKED: Final = "Answer with the one word: ready"
_NO_CHAT: Final = (
    *("embed", "whisper", "tts", "dall-e", "moderation", "transcribe", "realtime", "image"),
    *("sora", "davinci", "babbage", "rerank", "ocr", "imagen", "veo"),
)
_VERSION: Final = re.compile(r"[-:@](latest|\d{6,8}|\d{4}-\d\d-\d\d)\Z", re.ASCII)
_QUOTA: Final = {"insufficient_quota", "billing_hard_limit_reached", "billing_error"}


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """The result of one test request."""

    model: str
    text: str
    input_tokens: int
    output_tokens: int
    seconds: float
    usd: float | None
    """Its cost; None if the price is not known."""
    context: ServedContext | None = None
    """The context that its server serves, if it is one of one's own that reports it."""


@dataclass(frozen=True, slots=True)
class ProviderClient:
    """Asks one endpoint. Every method raises ``EngineFailed``."""

    endpoint: Endpoint
    key_source: str = ""
    """The source of the key, for messages; empty: it was given for this request."""

    @classmethod
    def to(
        cls, provider: Provider, base_url: str, key: str, key_source: str = ""
    ) -> ProviderClient:
        """A client of ``provider`` at ``base_url``; ``key`` is empty where none is needed."""
        return cls(Endpoint(provider.dialect, base_url, key or NO_KEY, TEST_S), key_source)

    @classmethod
    def by_settings(cls, spec: EngineSpec, env: Mapping[str, str]) -> tuple[ProviderClient, str]:
        """The client that the engine ``llm`` would be for ``spec``, and its model (or empty)."""
        settings = read_settings(spec, env, needs_model=False)
        return cls(settings.endpoint, settings.key_source), settings.model

    @property
    def key(self) -> str:
        """The key, or empty without one."""
        return "" if self.endpoint.api_key == NO_KEY else self.endpoint.api_key

    @property
    def provider(self) -> Provider:
        """The provider of the endpoint."""
        return provider_at(self.endpoint.dialect, self.endpoint.base_url)

    @property
    def address(self) -> str:
        """The address that is asked."""
        return (self.endpoint.base_url or self.provider.base_url).rstrip("/")

    async def models(self, *, limit_s: float = LIST_S) -> tuple[str, ...]:
        """The names of the models that the key may use, without those that can't chat; sorted."""
        path = "/v1/models?limit=1000" if self._is_anthropic else "/models"
        document = await self.ask("GET", path, None, limit_s)
        rows = document.get("data", document.get("models"))
        if not isinstance(rows, list):
            raise failures.BadModelOutput(f"{self.address} answered with no list of models")
        names = {_name(each) for each in rows[:MOST_MODELS]} - {""}
        return tuple(sorted(each for each in names if _may_chat(each)))

    async def only_model(self, *, limit_s: float = LIST_S) -> str:
        """The name of the only model; ``NotConfigured`` names those to choose from."""
        known = await self.models(limit_s=limit_s)
        if len(known) == 1:
            return known[0]
        if not known:
            raise failures.NotConfigured(
                f"the server {self.address} lists no model; load one there"
            )
        raise failures.NotConfigured(
            f"the server {self.address} has {len(known)} models, and none of them is chosen. It has: "
            f"{_few(known)}. Choose: /model {known[0]}, or `agentsup models set {known[0]}`"
        )

    async def unknown(
        self, model: str, error: EngineFailed, *, limit_s: float = LIST_S, in_chat: bool = False
    ) -> EngineFailed:
        """``error``, or that the provider does not have ``model``: see ``unknown_model``."""
        try:
            known = await self.models(limit_s=limit_s)
        except EngineFailed:
            return error
        if has_model(model, known):
            return error
        return unknown_model(model, known, self.address, in_chat=in_chat)

    async def try_model(
        self, model: str, *, prices: Prices | None = None, limit_s: float = TEST_S
    ) -> ModelAnswer:
        """Make one short request to ``model``, which costs a fraction of a cent where it costs."""
        began = SystemClock().monotonic()
        try:
            document = await self.ask("POST", self._path, self._body(model), limit_s)
        except (failures.RequestRejected, failures.NotConfigured) as error:
            raise await self.unknown(model, error) from None
        seconds = SystemClock().monotonic() - began
        usage = document.get("usage")
        usage = usage if isinstance(usage, Mapping) else {}
        sent = _count(usage, "prompt_tokens", "input_tokens")
        got = _count(usage, "completion_tokens", "output_tokens")
        usd: float | None = 0.0
        if self.provider.prices:
            price = await (prices or Prices()).of(self.provider.prices, model)
            usd = None if price is None or not sent + got else price.of(sent, got)
        elif self.provider.name == "compatible":
            usd = None
        return ModelAnswer(model, clean(_said(document))[:200], sent, got, seconds, usd)

    async def ask(
        self, method: str, path: str, body: Mapping[str, Any] | None, limit_s: float
    ) -> Mapping[str, Any]:
        """Make one request, and return its answer; an empty one if that is no JSON."""
        limits = AnswerLimits(
            body_bytes=8 * MIB,
            connect_s=limit_s,
            idle_s=limit_s,
            total_s=limit_s,
        )
        url = f"{self.address}{path}"
        # Loaded with the first question: most homes ask for no models.
        http = await asyncio.to_thread(_client)
        connector = aiohttp.TCPConnector(ssl=await tls.loaded())
        try:
            async with (
                http.new_session(limits, connector=connector) as session,
                # No redirects: the key must not go to another address than the named one.
                session.request(
                    method,
                    url,
                    json=body,
                    headers=self._headers(),
                    allow_redirects=False,
                ) as response,
            ):
                content = await http.whole(response, limits)
        except TimeoutError:
            raise failures.ProviderTimedOut(
                f"{self.address} did not answer within {limit_s:g} s{self._start}"
            ) from None
        except LimitExceeded as over:
            raise failures.BadModelOutput(
                f"{self.address} sent what can't be used: {over.text}"
            ) from None
        except ProxyUnusable as error:
            raise failures.NotConfigured(f"{self.address} can't be asked: {error}") from None
        except (aiohttp.ClientError, OSError, ValueError):
            raise failures.ConnectionFailed(
                f"{self.address} can't be reached; is the address right and the server up?{self._start}"
            ) from None
        document = await compute(partial(_document, content), key="models")
        if response.status == 200:
            return document
        raise self._refused(response.status, document)

    # -- inside ------------------------------------------------------------------------------------

    @property
    def _is_anthropic(self) -> bool:
        return self.endpoint.dialect == "anthropic"

    @property
    def _path(self) -> str:
        return "/v1/messages" if self._is_anthropic else "/chat/completions"

    def _body(self, model: str) -> dict[str, Any]:
        # OpenAI's newer models refuse max_tokens, other servers may not know the newer name.
        limit = "max_completion_tokens" if self.provider.name == "openai" else "max_tokens"
        messages = [{"role": "user", "content": _ASKED}]
        return {"model": model, "messages": messages, limit: _ANSWER_TOKENS}

    def _headers(self) -> dict[str, str]:
        key = self.endpoint.api_key
        if self._is_anthropic:
            return {"x-api-key": key, "anthropic-version": _ANTHROPIC_VERSION}
        return {"Authorization": f"Bearer {key}"}

    @property
    def _start(self) -> str:
        return f" ({self.provider.start})" if self.provider.start else ""

    @property
    def _key_shown(self) -> str:
        return f"the key from {self.key_source}" if self.key_source else "this key"

    def _refused(self, status: int, document: Mapping[str, Any]) -> EngineFailed:
        where = self.address
        quoted, code = self._quoted(document)
        if 300 <= status < 400:
            return failures.NotConfigured(
                f"{where} redirects elsewhere; name the address that it redirects to as base_url"
            )
        if status in (401, 403):
            if not self.key:
                return failures.AuthFailed(f"{where} wants a key")
            return failures.AuthFailed(
                f"{where} does not accept {self._key_shown}{quoted}"
                + (f"; check it at {self.provider.keys_at}" if self.provider.keys_at else "")
            )
        if status == 402 or code in _QUOTA:
            return failures.ProviderQuotaExceeded(
                f"{where} says that the account has no credit left{quoted}; top it up there"
            )
        if status == 429:
            return failures.ProviderRateLimited(f"{where} says: too many requests; try again later")
        if status == 404:
            return failures.NotConfigured(
                f"{where} has nothing at this address; most servers' base URL ends with /v1"
            )
        if status < 500:
            return failures.RequestRejected(f"{where} refused the request{quoted}")
        return failures.ServerFailed(f"{where} failed with status {status}{quoted}")

    def _quoted(self, document: Mapping[str, Any]) -> tuple[str, str]:
        """The server's own words as a part of a sentence, and its code for the error."""
        error = document.get("error")
        facts = error if isinstance(error, Mapping) else {"message": error}
        text = facts.get("message") or document.get("message") or document.get("detail")
        code = next((str(c) for c in (facts.get("code"), facts.get("type")) if c), "")
        if not isinstance(text, str) or not text.strip():
            return "", code
        shown = " ".join(clean(text).split())
        # Some servers quote the key that they refuse, also in part.
        key = self.endpoint.api_key
        for part in {key, key[:8], key[-4:]} if len(key) >= 12 else {key}:
            shown = shown.replace(part, "***") if part else shown
        return f": {shown[:_QUOTE_CHARS]}", code


def unknown_model(
    model: str, known: Sequence[str], where: str, *, in_chat: bool = False
) -> failures.ModelNotFound:
    """The failure that names models like ``model``, or else some that there are; ``in_chat``, also
    the command that chooses the first one."""
    near = near_names(model, known)
    meant = f"Did you mean {' or '.join(near)}?" if near else f"It has: {_few(known)}"
    choose = (
        f"{'' if near else '.'} Choose: /model {[*near, *known][0]}" if in_chat and known else ""
    )
    no_such = f"the server {where} has no model named {model!r}"
    return failures.ModelNotFound(f"{no_such}. {meant}{choose}" if known else no_such)


def _few(known: Sequence[str]) -> str:
    more = f" and {len(known) - _FEW} more" if len(known) > _FEW else ""
    return f"{', '.join(known[:_FEW])}{more}"


def has_model(model: str, known: Iterable[str]) -> bool:
    """Whether a provider that lists ``known`` knows ``model``: providers take short names for the
    versions that they list, such as ``claude-x-4`` for ``claude-x-4-20260101``."""
    bare = model.removesuffix("-latest").removesuffix(":latest")
    return any(each == model or _VERSION.sub("", each) == bare for each in known)


def near_names(model: str, known: Sequence[str], most: int = 5) -> tuple[str, ...]:
    """The known names that contain ``model``, or are most like it, also by their part after a slash."""
    within = [each for each in known if model.casefold() in each.casefold()][:most]
    if model and within:
        return tuple(within)
    by_fold = {each.casefold(): each for each in known}
    by_fold |= {each.casefold().rpartition("/")[2]: each for each in known}
    close = difflib.get_close_matches(model.casefold()[:_NAME_CHARS], by_fold, n=most, cutoff=0.5)
    return tuple(dict.fromkeys(by_fold[each] for each in close))


def _name(row: Any) -> str:
    found = row.get("id") or row.get("name") if isinstance(row, Mapping) else None
    if not isinstance(found, str) or len(found) > _NAME_CHARS or not found.isprintable():
        return ""
    return found.removeprefix("models/")


def _may_chat(name: str) -> bool:
    return not any(each in name.casefold() for each in _NO_CHAT)


def _document(body: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return {"data": found} if isinstance(found, list) else found if isinstance(found, dict) else {}


def _said(document: Mapping[str, Any]) -> str:
    """The text of an answer in either dialect; empty if there is none, as after thinking alone."""
    try:
        if "choices" in document:
            return str(document["choices"][0]["message"]["content"] or "")
        return "".join(part.get("text", "") for part in document.get("content", ()))
    except (LookupError, TypeError, AttributeError):
        return ""


def _count(usage: Mapping[str, Any], *keys: str) -> int:
    return next((n for key in keys if isinstance(n := usage.get(key), int)), 0)


def _client() -> ModuleType:
    return import_module("agentsup.kit.outbound.aiohttp_client")
