"""Translates what Claude Code writes into our events, and its ``result`` into the end. Pure.

A failed call of the model's provider ends as ``subtype: success`` with ``is_error``. So only
``is_error``, ``api_error_status`` and the ``error`` word of the last answer count for it.
"""

from __future__ import annotations

import re
from typing import Any

from agentsup.engines import failures
from agentsup.engines.clean import as_dict, json_object, objects
from agentsup.engines.thoughts import AnswerText
from agentsup.model.engine import (
    EngineEvent,
    EngineNotice,
    ThinkingDelta,
    ToolFinished,
    ToolStarted,
    Usage,
)
from agentsup.model.errors import EngineFailed

_SIGN_IN = (
    'sign in with the CLI itself (`claude`, then /login, with engine_options.home = "user"), or '
    'set ANTHROPIC_API_KEY as "env:NAME" in engine_options.env'
)
_MISSING_SESSION = "No conversation found"
_TAKEN_SESSION = "already in use"
_UNKNOWN_OPTION = "unknown option"
_MAX_CHARS = 500
_SIGNED_OUT = re.compile(
    r"login|failed to authenticate|(?:oauth|authentication)\b.{0,40}\b(?:expired|revoked|invalid)"
    r"|invalid (?:api key|authentication)",
    re.IGNORECASE,
)
_NO_CREDIT = re.compile(r"credit balance is too low", re.IGNORECASE)
_PREVIEW_CHARS = 200
_HOPELESS = frozenset({400, 401, 402, 403, 404})
"""Statuses of a provider that a retry does not change, though Claude tries again."""
ALIVE = ThinkingDelta("")
"""A sign of life: the program works though there is nothing to show."""


def provider_failure(
    status: int | None, word: str, said: str, retry_after_s: float | None
) -> EngineFailed:
    """The failure for an HTTP ``status`` and Claude's own ``word`` for it."""
    said = said[:_MAX_CHARS]
    if word in {"authentication_failed", "oauth_org_not_allowed"} or status in {401, 403}:
        return failures.AuthFailed(f"claude is not signed in: {said}; {_SIGN_IN}")
    if word == "billing_error" or status == 402:
        return failures.ProviderQuotaExceeded(f"the account of claude has no credit left: {said}")
    if word == "rate_limit" or status == 429:
        return failures.ProviderRateLimited(
            f"claude is over its rate limit: {said}", retry_after_s=retry_after_s
        )
    if status == 404 or word == "model_not_found":
        return failures.ModelNotFound(f"claude does not know the model: {said}")
    if "prompt is too long" in said.lower():
        return failures.ContextOverflow(f"the conversation is too long for claude: {said}")
    if status in {408, 504}:
        return failures.ProviderTimedOut(f"claude's provider did not answer in time: {said}")
    if word in {"server_error", "overloaded"} or (status is not None and status >= 500):
        return failures.ServerFailed(
            f"claude's provider failed or is overloaded: {said}", retry_after_s=retry_after_s
        )
    if word == "invalid_request" or status is not None:
        return failures.RequestRejected(f"claude's provider refused the request: {said}")
    return failures.ConnectionFailed(f"claude could not reach its provider: {said}")


def result_failure(
    result: dict[str, Any], word: str, retry_after_s: float | None, state: bytes | None = None
) -> EngineFailed | None:
    """Return why a ``result`` is no answer, or None. ``state``: with it the turn can continue."""
    subtype = str(result.get("subtype") or "")
    said = said_by(result)
    if subtype == "error_max_turns":
        return failures.TurnLimitReached(
            "claude used up the steps of this turn (max_steps)", state=state
        )
    if subtype == "error_max_budget_usd":
        return failures.LimitReached("claude used up the money of this turn (budget.per_turn_usd)")
    status = result.get("api_error_status")
    status = status if isinstance(status, int) else None
    if not result.get("is_error"):
        return None
    if status is not None or word:
        return provider_failure(status, word, said, retry_after_s)
    known = "billing_error" if _NO_CREDIT.search(said) else ""
    known = "authentication_failed" if _SIGNED_OUT.search(said) else known
    if known or "API Error" in said:
        return provider_failure(None, known, said, retry_after_s)
    return failures.Permanent(f"claude could not finish: {said or subtype}")


def is_other_session(text: str, *, exists: bool) -> bool:
    """Whether an error text contradicts ``exists``: the session is missing (True), or its id is
    taken (False)."""
    return (_MISSING_SESSION if exists else _TAKEN_SESSION) in text


def too_old(stderr: str) -> EngineFailed | None:
    """Return the failure of a version that does not know one of our flags, or None."""
    if _UNKNOWN_OPTION not in stderr:
        return None
    return failures.VersionTooOld(
        f"this version of claude is too old ({stderr[:200]}): update it with "
        "npm install -g @anthropic-ai/claude-code@latest"
    )


def said_by(result: dict[str, Any]) -> str:
    """Return everything that a result says."""
    errors = result.get("errors")
    if isinstance(errors, list) and errors:
        return "; ".join(str(each) for each in errors)
    return str(result.get("result") or result.get("error") or "")


def read_line(line: bytes) -> dict[str, Any] | None:
    """The message in ``line``; None for anything else, such as a warning somebody printed."""
    found = json_object(line)
    return found if found is not None and isinstance(found.get("type"), str) else None


class ClaudeTurnState:
    """The state of one turn: its text, its usage, its calls and refusals."""

    def __init__(self, *, api_retries: int, answer: AnswerText | None = None) -> None:
        self._api_retries = api_retries
        self._has_reported_retry = False
        self._answer = answer or AnswerText()
        self._streamed: set[str] = set()
        self._message_id = ""
        self._tools: dict[str, str] = {}
        self._reported = Usage()
        self.session_id = ""
        self.error_word = ""
        self.resets_at_s: float | None = None
        """When a rejected rate limit ends, in seconds since 1970."""
        self.used_tools = False
        self.result: dict[str, Any] | None = None
        self.refused: set[str] = set()
        """Ids of calls that we denied; others were denied by Claude itself."""

    @property
    def text(self) -> str:
        """The answer so far."""
        return self._answer.text

    def is_over(self) -> bool:
        """Whether the result has come."""
        return self.result is not None

    def hear(self, message: dict[str, Any]) -> list[EngineEvent]:
        """Return the events of one message. Raises ``EngineFailed`` if the turn must be ended."""
        match message.get("type"):
            case "system":
                return self._system(message)
            case "stream_event":
                return self._partial(message)
            case "assistant":
                return self._assistant(message)
            case "user":
                return self._tool_results(message)
            case "rate_limit_event":
                return self._rate_limit(message)
            case "result":
                self.result = message
                return self._result(message)
        return [ALIVE]

    def failure_of_retry(self, message: dict[str, Any]) -> EngineFailed:
        """Return the failure after too many attempts of one request."""
        status, delay_ms = message.get("error_status"), message.get("retry_delay_ms")
        wait_s = delay_ms / 1000 if isinstance(delay_ms, int | float) else None
        word, number = str(message.get("error") or ""), status if isinstance(status, int) else None
        what = f"{number or word or 'no answer'} at attempt {message.get('attempt')}"
        return provider_failure(number, word if number is None else "", what, wait_s)

    # -- inside ------------------------------------------------------------------------------------

    def _system(self, message: dict[str, Any]) -> list[EngineEvent]:
        if message.get("subtype") == "init":
            self.session_id = str(message.get("session_id") or "")
        if message.get("subtype") == "api_retry":
            attempt, status = message.get("attempt"), message.get("error_status")
            is_over = isinstance(attempt, int) and attempt > self._api_retries
            if is_over or status in _HOPELESS:
                raise self.failure_of_retry(message)
            if not self._has_reported_retry:
                self._has_reported_retry = True
                return [EngineNotice("The model's provider is not answering; claude tries again.")]
        return [ALIVE]

    def _partial(self, message: dict[str, Any]) -> list[EngineEvent]:
        event = message.get("event")
        if not isinstance(event, dict) or message.get("parent_tool_use_id"):
            return [ALIVE]
        match event.get("type"):
            case "message_start":
                started = as_dict(event.get("message"))
                self._message_id = str(started.get("id") or "")
                # Reported at once, so that the tokens of a killed turn are counted too.
                used = as_dict(started.get("usage"))
                return [self._use(_input(used), 0, cached=_cached(used, Usage()))]
            case "message_delta":
                used = as_dict(event.get("usage"))
                return [self._use(0, _count(used, "output_tokens"))]
            case "content_block_start" | "content_block_stop":
                return self._answer.end() or [ALIVE]
            case "content_block_delta":
                delta = as_dict(event.get("delta"))
                if delta.get("type") == "text_delta":
                    self._streamed.add(self._message_id)
                    return [self._answer.feed(str(delta.get("text") or ""))]
                if delta.get("type") == "thinking_delta":
                    return [ThinkingDelta(str(delta.get("thinking") or ""))]
        return [ALIVE]

    def _assistant(self, message: dict[str, Any]) -> list[EngineEvent]:
        if message.get("error"):
            # A refusal of the provider in the form of an answer; the result repeats it.
            self.error_word = str(message["error"])
            return [ALIVE]
        content = as_dict(message.get("message"))
        found: list[EngineEvent] = []
        is_inner = bool(message.get("parent_tool_use_id"))
        for block in objects(content.get("content")):
            if block.get("type") == "text" and not is_inner:
                if content.get("id") not in self._streamed and block.get("text"):
                    found += [
                        *self._answer.end(),
                        self._answer.feed(str(block["text"])),
                        *self._answer.end(),
                    ]
            elif block.get("type") == "tool_use":
                self.used_tools = True
                name = str(block.get("name") or "tool")
                self._tools[str(block.get("id"))] = name
                found.append(ToolStarted(name, as_dict(block.get("input"))))
        return found or [ALIVE]

    def _tool_results(self, message: dict[str, Any]) -> list[EngineEvent]:
        found: list[EngineEvent] = []
        for block in objects(as_dict(message.get("message")).get("content")):
            if block.get("type") == "tool_result":
                name = self._tools.pop(str(block.get("tool_use_id")), None)
                if name is not None:
                    preview = _plain(block.get("content"))[:_PREVIEW_CHARS]
                    found.append(ToolFinished(name, not block.get("is_error"), preview))
        return found or [ALIVE]

    def _rate_limit(self, message: dict[str, Any]) -> list[EngineEvent]:
        info = as_dict(message.get("rate_limit_info"))
        resets_at = info.get("resetsAt")
        if info.get("status") == "rejected" and isinstance(resets_at, int | float):
            self.resets_at_s = float(resets_at)
        return [ALIVE]

    def _result(self, message: dict[str, Any]) -> list[EngineEvent]:
        self.session_id = str(message.get("session_id") or self.session_id)
        used = as_dict(message.get("usage"))
        usd = message.get("total_cost_usd")
        rest = self._use(
            max(0, _input(used) - self._reported.input_tokens),
            max(0, _count(used, "output_tokens") - self._reported.output_tokens),
            float(usd) if isinstance(usd, int | float) else None,
            cached=_cached(used, self._reported),
        )
        found = [*self._answer.end(), rest]
        denied = [
            str(each.get("tool_name") or "a tool")
            for each in objects(message.get("permission_denials"))
            if str(each.get("tool_use_id")) not in self.refused
        ]
        if denied:
            names = ", ".join(sorted(set(denied)))
            found.append(
                EngineNotice(f"Claude was not allowed to use {names}, by its own settings.")
            )
        return found

    def _use(
        self,
        read: int,
        written: int,
        usd: float | None = None,
        *,
        cached: tuple[int, int] = (0, 0),
    ) -> Usage:
        """Note and return a report; ``cached`` are tokens read from and written to the cache."""
        before, (cache_read, cache_write) = self._reported, cached
        self._reported = Usage(
            before.input_tokens + read,
            before.output_tokens + written,
            cache_read_tokens=before.cache_read_tokens + cache_read,
            cache_write_tokens=before.cache_write_tokens + cache_write,
        )
        return Usage(
            read, written, usd, cache_read_tokens=cache_read, cache_write_tokens=cache_write
        )


def _count(used: dict[str, Any], name: str) -> int:
    found = used.get(name)
    return found if isinstance(found, int) else 0


def _input(used: dict[str, Any]) -> int:
    """Return all tokens that were read, whether from a cache or not."""
    cached = _count(used, "cache_creation_input_tokens") + _count(used, "cache_read_input_tokens")
    return _count(used, "input_tokens") + cached


def _cached(used: dict[str, Any], before: Usage) -> tuple[int, int]:
    """Return the tokens read from and written to the provider's cache since ``before``."""
    return (
        max(0, _count(used, "cache_read_input_tokens") - before.cache_read_tokens),
        max(0, _count(used, "cache_creation_input_tokens") - before.cache_write_tokens),
    )


def _plain(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(str(block.get("text") or "") for block in objects(content))
