"""Errors of the model library and of providers, translated by type into engine failures."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic_ai import exceptions as library
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart

from agentsup.engines import failures
from agentsup.engines.llm.settings import LlmSettings
from agentsup.engines.llm.toolset import takes_no_tools
from agentsup.kit.outbound.limits import exceeded
from agentsup.kit.outbound.proxy import unusable_behind
from agentsup.model.errors import EngineFailed

_QUOTE_CHARS = 300


def translate(
    error: Exception, settings: LlmSettings, messages: Sequence[ModelMessage], *, used_tools: bool
) -> EngineFailed | None:
    """The engine failure for ``error``; None where it is not the library's or the provider's.

    ``messages`` are those of the run, to tell an empty answer from an unusable one.
    """
    over = exceeded(error)
    if over is not None:
        where = settings.endpoint.base_url or settings.endpoint.dialect
        return failures.BadModelOutput(f"{where} sent what can't be used: {over.text}")
    if (unusable := unusable_behind(error)) is not None:
        return failures.NotConfigured(f"the model can't be asked: {unusable}")
    if isinstance(error, library.ModelAPIError):
        return _from_provider(error, settings)
    if isinstance(error, library.UsageLimitExceeded):
        return failures.LimitReached(
            f"the turn reached a limit of its own ({error.message}); raise total_tokens_limit in "
            "engine_options if it was meant to go on"
        )
    if isinstance(error, library.ContentFilterError):
        return failures.ContentFiltered("the provider's content filter stopped the answer")
    if isinstance(error, library.OutputTokenLimitExceeded):
        return failures.LimitReached(
            "the answer was cut off at the model's output limit; raise max_tokens in engine_options"
        )
    if isinstance(error, library.UnexpectedModelBehavior):
        return _unusable(error, settings, messages, used_tools=used_tools)
    if isinstance(error, library.UserError):
        return failures.NotConfigured(
            f"the model can't be used like this: {quote(error, settings)}"
        )
    return None


def quote(error: Exception, settings: LlmSettings) -> str:
    """The error's own words, bounded and without the key."""
    text = " ".join(str(error).split())[:_QUOTE_CHARS]
    key = settings.endpoint.api_key
    return text.replace(key, "***") if len(key) > 3 else text


def _from_provider(error: library.ModelAPIError, settings: LlmSettings) -> EngineFailed:
    model, where = settings.model, settings.endpoint.base_url or settings.endpoint.dialect
    wait = {"retry_after_s": error.retry_after}
    if isinstance(error, library.ModelQuotaExceededError):
        return failures.ProviderQuotaExceeded(
            f"the account at {where} has no credit left; top it up"
        )
    if isinstance(error, library.ModelRateLimitError):
        return failures.ProviderRateLimited(
            f"{where} says: too many requests; trying again later", **wait
        )
    if isinstance(error, library.ModelContextWindowExceededError):
        return failures.ContextOverflow(
            f"the conversation is too long for {model}; begin a new one with /new"
        )
    if isinstance(error, library.ModelAuthenticationError):
        return failures.AuthFailed(
            f"{where} does not accept the key from {settings.key_source}; check it there"
        )
    if isinstance(error, library.ModelNotFoundError) and takes_no_tools(str(error)):
        return failures.RequestRejected(f"{where} refused the request: {quote(error, settings)}")
    if isinstance(error, library.ModelNotFoundError):
        return failures.ModelNotFound(f"the server {where} has no model named {model!r}")
    if isinstance(error, library.ModelRequestRejectedError):
        return failures.RequestRejected(f"{where} refused the request: {quote(error, settings)}")
    if isinstance(error, library.ModelTimeoutError | library.ModelRequestTimeout):
        return failures.ProviderTimedOut(
            f"{where} did not answer within {settings.endpoint.timeout_s:g} s", **wait
        )
    if isinstance(error, library.ModelConnectionError):
        return failures.ConnectionFailed(
            f"{where} can't be reached or broke off; is base_url right and the server up?", **wait
        )
    status = getattr(error, "status_code", None)
    if isinstance(status, int) and 400 <= status < 500 and status not in {408, 409, 425, 429}:
        return failures.RequestRejected(f"{where} refused the request: {quote(error, settings)}")
    return failures.ServerFailed(f"{where} failed: {quote(error, settings)}", **wait)


def _unusable(
    error: library.UnexpectedModelBehavior,
    settings: LlmSettings,
    messages: Sequence[ModelMessage],
    *,
    used_tools: bool,
) -> EngineFailed:
    last = next((m for m in reversed(messages) if isinstance(m, ModelResponse)), None)
    said = last is not None and any(
        not isinstance(part, TextPart) or part.content.strip() for part in last.parts
    )
    if last is not None and not said:
        if used_tools:
            return failures.EmptyAfterToolUse(
                "the model used its tools and then said nothing, also when asked once more"
            )
        return failures.EmptyAnswer("the model answered with nothing, also when asked once more")
    return failures.BadModelOutput(f"the model's output can't be used: {quote(error, settings)}")
