"""The poll loop: ask, keep, and only then ask with the higher offset.

Telegram forgets what a higher offset confirms, so the offset follows the commit and never leads it
(P1). Nothing else happens here: what an update means is for others, and a bad one can't stop the
loop. While nobody writes, one request in 50 s is all there is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol
from urllib.parse import urlsplit

from agentsup.channels.desk import is_over
from agentsup.channels.report import ChannelState
from agentsup.channels.telegram.errors import (
    FloodWait,
    NotSent,
    PollConflict,
    TelegramError,
    TokenRefused,
)
from agentsup.channels.telegram.updates import Offset, Row, keep_tx, offset_of
from agentsup.kit import faults
from agentsup.kit.backoff import delay_s
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.model.errors import AgentsupError, Overloaded, StoreUnavailable
from agentsup.observe.logging import get_logger
from agentsup.store.database import Database, Tx

__all__ = ["ALLOWED_UPDATES", "Poller", "Trial", "judge"]

_log = get_logger(__name__)

ALLOWED_UPDATES = (
    "message",
    "edited_message",
    "callback_query",
    "message_reaction",
    "my_chat_member",
)
_BATCH = 100
_SLACK_S = 10.0
"""How much longer than the long poll itself the request may take."""
_STORE_PAUSE_S = 1.0
_ID_LIMIT = 2**53
_SHOWN_AFTER = 2
"""A single failed poll is no news."""
_SHOWN_WAIT_S = 15.0
"""But one after which we may not ask for this long is."""


class PollClient(Protocol):
    """What is needed of a client."""

    @property
    def bot_id(self) -> str: ...

    async def call(self, method: str, *, timeout_s: float = 20.0, **fields: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class Trial:
    """What a failed poll means: the state to show, why, how long to wait."""

    state: ChannelState
    detail: str
    wait_s: float


def judge(error: TelegramError, failures: int, unit: float) -> Trial:
    """What to do after the ``failures``-th failed poll in a row (from 1)."""
    if isinstance(error, FloodWait):
        return Trial(ChannelState.RETRYING, error.message, error.retry_after_s)
    if isinstance(error, PollConflict):
        # The client takes another connection after it: one that was cut off may still be served.
        wait_s = delay_s(failures - 1, base_s=2.0, cap_s=60.0, unit=unit)
        return Trial(ChannelState.CONFLICT, second_poller(""), wait_s)
    wait_s = delay_s(failures - 1, base_s=1.0, cap_s=30.0, unit=unit)
    detail = error.message
    if not isinstance(error, NotSent):  # which says so itself
        detail = f"Telegram can't be reached: {detail}"
    return Trial(ChannelState.RETRYING, detail, wait_s)


def second_poller(webhook_url: str) -> str:
    """Who the other one is likely to be, and what to do."""
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


class Poller:
    """Polls for one bot. ``run`` lasts until it is cancelled."""

    def __init__(
        self,
        *,
        client: PollClient,
        database: Database,
        clock: Clock,
        entropy: Entropy,
        poll_s: float,
        deaf_after_s: float,
        show: Callable[[ChannelState, str, int | None], None],
        tell: Callable[[str], Awaitable[None]],
        agent_name: str,
    ) -> None:
        """``show`` hears of each answered poll (with its time) and each trouble; ``tell`` speaks
        to the operator."""
        self._client = client
        self._database = database
        self._clock = clock
        self._entropy = entropy
        self._poll_s = poll_s
        self._deaf_after_s = deaf_after_s
        self._show = show
        self._tell = tell
        self._agent_name = agent_name
        self._offset = Offset()
        self._failures = 0
        self._is_told = False
        self._answered_at = clock.monotonic()
        self.caught_up = False
        """The platform had nothing more to give at the last poll."""

    async def run(self, take: Callable[[Sequence[Row]], Awaitable[None]]) -> None:
        """Give new rows to ``take``, in order; it may hold the loop up.

        Raises ``TokenRefused``, and ``StoreUnavailable`` once the store is closed."""
        bot_id = self._client.bot_id
        self._answered_at = self._clock.monotonic()
        self._offset = await self._database.read(
            lambda reader: offset_of(reader, bot_id), name="telegram.offset"
        )
        is_well = False
        while True:
            try:
                # The first one asks what is there and does not wait: health need not wait either.
                updates = await self._ask(self._poll_s if is_well else 0.0)
                await take(await self._keep(updates))
            except TokenRefused:
                raise
            except TelegramError as error:
                is_well = False
                await self._suffer(error)
            except (StoreUnavailable, Overloaded) as error:
                if is_over(error):
                    raise
                _log.warning("updates wait for the store", agent=self._agent_name, why=str(error))
                await self._clock.sleep(_STORE_PAUSE_S)
            else:
                is_well = True

    async def _ask(self, wait_s: float) -> list[Mapping[str, Any]]:
        fields: dict[str, Any] = {"timeout": int(wait_s), "limit": _BATCH}
        fields["allowed_updates"] = list(ALLOWED_UPDATES)
        offset = self._offset.to_ask(self._clock.now_ms())
        if offset is not None:
            fields["offset"] = offset
        answer = await self._client.call("getUpdates", timeout_s=wait_s + _SLACK_S, **fields)
        if not isinstance(answer, list):
            raise TelegramError("the answer to getUpdates is no list")
        usable = [each for each in answer if _is_usable(each)]
        if len(usable) < len(answer):
            _log.error(
                "updates without a usable number are left out",
                agent=self._agent_name,
                count=len(answer) - len(usable),
            )
            if not usable:
                raise TelegramError("no update in the answer has a usable number")
        await self._heard(len(answer) < _BATCH)
        return usable

    async def _heard(self, caught_up: bool) -> None:
        self._failures = 0
        self.caught_up = caught_up
        self._answered_at = self._clock.monotonic()
        self._show(ChannelState.UP, "", self._clock.now_ms())
        if self._is_told:
            self._is_told = False
            await self._say(f"The Telegram bot of {self._agent_name} hears again.")

    async def _keep(self, updates: Sequence[Mapping[str, Any]]) -> list[Row]:
        if not updates:
            return []
        bot_id, at = self._client.bot_id, self._clock.now_ms()
        step = partial(_keep_tx, bot_id=bot_id, batch=updates, at=at)
        offset, rows = await self._database.write(step, name="telegram.keep")
        faults.point("telegram.after_commit")
        self._offset = offset
        return rows

    async def _suffer(self, error: TelegramError) -> None:
        self._failures += 1
        trial = judge(error, self._failures, self._entropy.uniform(0.0, 1.0))
        detail = trial.detail
        if trial.state is ChannelState.CONFLICT:
            detail = second_poller(await self._webhook())
        is_long = trial.wait_s >= min(_SHOWN_WAIT_S, self._deaf_after_s)
        if self._failures >= _SHOWN_AFTER or is_long or trial.state is ChannelState.CONFLICT:
            self._show(trial.state, detail, None)
        if self._failures in (1, 10, 100, 1000):
            _log.warning(
                "a poll failed",
                agent=self._agent_name,
                failures=self._failures,
                why=error.message,
                next_s=round(trial.wait_s, 1),
            )
        await self._sit_out(trial.wait_s, detail)

    async def _sit_out(self, wait_s: float, detail: str) -> None:
        """Wait that long, but no longer than the operator may be left without a word."""
        until = self._clock.monotonic() + wait_s
        while True:
            silent_s = self._clock.monotonic() - self._answered_at
            left_s = until - self._clock.monotonic()
            if silent_s >= self._deaf_after_s and not self._is_told:
                self._is_told = True
                await self._say(
                    f"The Telegram bot of {self._agent_name} has heard nothing for "
                    f"{round(silent_s / 60)} minutes. {detail[:1].upper()}{detail[1:]}."
                )
            elif left_s <= 0:
                return
            else:
                to_word_s = left_s if self._is_told else self._deaf_after_s - silent_s
                await self._clock.sleep(max(0.001, min(left_s, to_word_s)))

    async def _webhook(self) -> str:
        """Where a webhook sends the updates, or empty."""
        try:
            info = await self._client.call("getWebhookInfo")
        except TelegramError:
            return ""
        url = info.get("url", "") if isinstance(info, Mapping) else ""
        return url if isinstance(url, str) else ""

    async def _say(self, text: str) -> None:
        try:
            await self._tell(text)
        except AgentsupError as error:
            _log.warning("nobody could be told", agent=self._agent_name, text=text, why=str(error))


def _is_usable(update: object) -> bool:
    """Whether it has a number to keep it by."""
    number = update.get("update_id") if isinstance(update, Mapping) else None
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number < _ID_LIMIT


def _keep_tx(
    tx: Tx, *, bot_id: str, batch: Sequence[Mapping[str, Any]], at: int
) -> tuple[Offset, list[Row]]:
    kept = keep_tx(tx, bot_id, batch, at=at)
    faults.point("telegram.before_commit")
    return kept
