"""The poll loop: request updates, store them, and only then request with the higher offset.

Telegram deletes updates that a higher offset confirms, so the offset is raised only after the
commit (P1). Updates are not parsed here, so a malformed one cannot stop the loop. While nobody
writes, there is one request in 50 s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from agentsup.channels.core.errors import PlatformError
from agentsup.channels.core.receiving import source
from agentsup.channels.core.receiving.messages import ReceiveDependencies
from agentsup.channels.core.receiving.raw import is_int, maybe_text
from agentsup.channels.core.receiving.rows import ReceivedRow
from agentsup.channels.core.receiving.source import RetryDecision, Source
from agentsup.channels.core.report import ChannelState
from agentsup.channels.telegram.client import TelegramClient
from agentsup.channels.telegram.errors import PollConflict
from agentsup.channels.telegram.received import Offset, offset_of, store_tx
from agentsup.kit import faults
from agentsup.kit.backoff import delay_s
from agentsup.kit.log import get_logger

_log = get_logger(__name__)

ALLOWED_UPDATES = (
    "message",
    "edited_message",
    "callback_query",
    "message_reaction",
    "stopped_message_generation",
    "my_chat_member",
)
OF_MANAGER = "managed_bot"
"""Asked for by main's bot alone: people may create bots through it."""
_BATCH = 100
_SLACK_S = 10.0
"""Seconds that the request may take longer than the long poll itself."""
_ID_LIMIT = 2**53


def decide_retry(error: PlatformError, failures: int, unit: float) -> RetryDecision:
    """Decide what to do after the ``failures``-th failed poll in a row (from 1).

    ``unit`` is a random number between 0 and 1, for the jitter.
    """
    if isinstance(error, PollConflict):
        # The client closes the connection then: a poll that was cut off may still be served.
        wait_s = delay_s(failures - 1, base_s=2.0, cap_s=60.0, unit=unit)
        return RetryDecision(ChannelState.CONFLICT, second_poller(""), wait_s)
    return source.decide_retry(error, failures, unit, unreachable="Telegram can't be reached")


def second_poller(webhook_url: str) -> str:
    """Return who the other poller probably is, and what to do."""
    if webhook_url:
        host = urlsplit(webhook_url).hostname or webhook_url
        return (
            f"a webhook at {host} gets this bot's updates; remove it there (deleteWebhook), or "
            "give the agent a bot of its own"
        )
    return (
        "another program polls with this bot's token, and Telegram serves only one: most likely a "
        "second agentsup (another home or machine), or the program that ran this bot before. End "
        "it, or get a new token from @BotFather"
    )


class Poller(Source):
    """Polls for one bot."""

    title = "Telegram"

    def __init__(
        self,
        client: TelegramClient,
        deps: ReceiveDependencies,
        show: Callable[[ChannelState, str, int | None], None],
    ) -> None:
        super().__init__(deps, show)
        self._client = client
        self._offset = Offset()
        self.caught_up = False
        """Whether the platform had no more updates at the last poll."""

    async def _load_position(self) -> None:
        self._offset = await self._deps.database.read(
            offset_of, self._client.bot_id, name="telegram.offset"
        )

    async def _receive(self, is_well: bool) -> list[ReceivedRow]:
        return await self._keep(await self._ask(self._deps.limits.poll_s if is_well else 0.0))

    async def _ask(self, wait_s: float) -> list[Mapping[str, Any]]:
        fields: dict[str, Any] = {"timeout": int(wait_s), "limit": _BATCH}
        of_manager = (OF_MANAGER,) if self._deps.spec().is_main else ()
        fields["allowed_updates"] = [*ALLOWED_UPDATES, *of_manager]
        offset = self._offset.to_ask(self._clock.now_ms())
        if offset is not None:
            fields["offset"] = offset
        answer = await self._client.call("getUpdates", timeout_s=wait_s + _SLACK_S, **fields)
        if not isinstance(answer, list):
            raise PlatformError("the answer to getUpdates is no list")
        usable = [each for each in answer if _is_usable(each)]
        if len(usable) < len(answer):
            _log.error(
                "updates without a usable number are left out",
                agent=self._deps.agent_name,
                count=len(answer) - len(usable),
            )
            if not usable:
                raise PlatformError("no update in the answer has a usable number")
        self.caught_up = len(answer) < _BATCH
        await self._answered()
        return usable

    async def _keep(self, updates: Sequence[Mapping[str, Any]]) -> list[ReceivedRow]:
        if not updates:
            return []
        bot_id, at = self._client.bot_id, self._clock.now_ms()
        step = partial(store_tx, bot_id=bot_id, batch=updates, at=at)
        offset, rows = await self._deps.database.write(step, name="telegram.keep")
        faults.platform_point("telegram", "after_commit")
        self._offset = offset
        return rows

    async def _after_failure(self, error: PlatformError) -> RetryDecision:
        decision = decide_retry(error, self._failures, self._deps.entropy.uniform(0.0, 1.0))
        if decision.state is ChannelState.CONFLICT:
            decision = replace(decision, detail=second_poller(await self._webhook()))
        return decision

    async def _webhook(self) -> str:
        """Return the URL to which a webhook sends the updates, or empty."""
        try:
            info = await self._client.call("getWebhookInfo")
        except PlatformError:
            return ""
        return maybe_text(info, "url")


def _is_usable(update: object) -> bool:
    """Whether the update has a valid number, by which it is stored."""
    number = update.get("update_id") if isinstance(update, Mapping) else None
    return is_int(number) and 0 <= number < _ID_LIMIT
