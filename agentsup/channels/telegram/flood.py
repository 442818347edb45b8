"""The rate limits of one bot and its chats: windows and pauses. Decisions only.

A send is counted from its beginning until ``span_s`` after its *end*, because it may reach the
platform at any instant between the two. So the platform, which counts arrivals, never counts more
than is allowed, even if the network delivers unevenly. Time is passed in (loop seconds).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

_STUCK_S = 5.0
"""A send without an end counts as ended after this long; otherwise a request that hangs would block
its chat."""
_CHATS_MAX = 512
_UNSURE_WAIT_S = 1.0


class CallKind(StrEnum):
    """The kind of a call, by which it is counted."""

    MESSAGE = "message"
    EDIT = "edit"
    LIGHT = "light"
    """Typing, drafts, reactions, deletions: calls that bring nobody a message."""


_PAUSED: Mapping[CallKind, tuple[CallKind, ...]] = {
    CallKind.MESSAGE: (CallKind.MESSAGE, CallKind.EDIT, CallKind.LIGHT),
    CallKind.EDIT: (CallKind.EDIT, CallKind.LIGHT),
    CallKind.LIGHT: (CallKind.LIGHT,),
}
"""The kinds that a 429 pauses in its chat: the kind of the call and less important ones, so that a
sign or a draft never delays an answer. The pause of a less important kind is at least as long."""

_LIGHT = frozenset(
    {
        "deleteMessage",
        "deleteMessages",
        "sendChatAction",
        "sendMessageDraft",
        "setMessageReaction",
    }
)


def kind_of(method: str) -> CallKind:
    """Return the kind of the calls of this method."""
    if method in _LIGHT:
        return CallKind.LIGHT
    return CallKind.EDIT if method.startswith("edit") else CallKind.MESSAGE


@dataclass(frozen=True, slots=True)
class Rates:
    """The rate limits, each ``(limit, span_s)``: at most ``limit`` calls in ``span_s`` seconds."""

    bot: tuple[int, float] = (30, 1.0)
    group: tuple[int, float] = (20, 60.0)
    """Messages and edits together."""
    private: tuple[int, float] = (3, 3.0)
    """Messages: one a second, three at once."""
    private_edits: tuple[int, float] = (3, 3.0)
    light: tuple[int, float] = (10, 5.0)
    reserved_share: float = 0.4
    """This share of each window is reserved for calls that may not be dropped."""


class RateWindow:
    """At most ``limit`` arrivals in any ``span_s`` seconds."""

    def __init__(self, limit: int, span_s: float, reserved_share: float = 0.0) -> None:
        self.limit = limit
        self.span_s = span_s
        self._for_droppable = max(1, limit - int(limit * reserved_share))
        self._ended: list[float] = []
        self._flying: dict[int, float] = {}

    def ready_at(self, now: float, *, is_droppable: bool = False) -> float:
        """Return the earliest time of another send; infinite if one under way must end before."""
        self._settle(now)
        limit = self._for_droppable if is_droppable else self.limit
        excess = len(self._ended) + len(self._flying) - limit
        if excess < 0:
            return now
        if excess < len(self._ended):
            return self._ended[excess] + self.span_s
        return inf

    def begin(self, ticket: int, now: float) -> None:
        """Count a send that begins now."""
        self._flying[ticket] = now

    def end(self, ticket: int, now: float) -> None:
        """Note that a send was answered, refused or given up."""
        if self._flying.pop(ticket, None) is not None:
            insort(self._ended, now)

    def is_idle(self, now: float) -> bool:
        """Whether no send is counted."""
        self._settle(now)
        return not (self._ended or self._flying)

    def next_change(self, now: float) -> float:
        """Return when the oldest send under way counts as ended; infinite if there is none."""
        return min((began + _STUCK_S for began in self._flying.values()), default=inf)

    def _settle(self, now: float) -> None:
        for ticket, began in [*self._flying.items()]:
            if began + _STUCK_S <= now:
                del self._flying[ticket]
                insort(self._ended, began + _STUCK_S)
        keep = 0
        while keep < len(self._ended) and self._ended[keep] + self.span_s <= now:
            keep += 1
        del self._ended[:keep]


@dataclass(slots=True)
class _Chat:
    windows: dict[CallKind, RateWindow]
    paused_until: dict[CallKind, float] = field(
        default_factory=lambda: dict.fromkeys(CallKind, 0.0)
    )


class RateLimiter:
    """Counts what one bot has sent lately, and knows the pauses that the platform asked for.

    It outlives the connections of a bot, because the platform goes on counting while a bot is
    rebuilt. It does not outlive the process, and need not: a refused part of the outbox stores in
    its row when it may be sent again, and no other part overtakes it in its conversation. So
    nothing is sent into that conversation during the pause, even if the process is killed. Other
    calls in the chat (another topic, a typing sign) meet one more refusal in the next process,
    which has no effect and uses up no attempt.
    """

    def __init__(self, rates: Rates | None = None) -> None:
        self._rates = rates or Rates()
        self._bot = RateWindow(*self._rates.bot, self._rates.reserved_share)
        self._bot_paused_until = 0.0
        self._chats: dict[int, _Chat] = {}
        self._last_ticket = 0

    def new_ticket(self) -> int:
        """Return a number for the next send; numbers go upwards."""
        self._last_ticket += 1
        return self._last_ticket

    def ready_at(self, chat_id: int, kind: CallKind, now: float, *, is_droppable: bool) -> float:
        """Return the earliest time at which such a send may begin.

        It is ``now`` if it may begin at once, and infinite if a send under way must end before.
        """
        chat = self._chat(chat_id, now)
        window = chat.windows[kind]
        return max(
            now,
            chat.paused_until[kind],
            self._bot_paused_until,
            window.ready_at(now, is_droppable=is_droppable),
            self._bot.ready_at(now, is_droppable=is_droppable),
        )

    def next_change(self, chat_id: int, kind: CallKind, now: float) -> float:
        """Return when an infinite result of ``ready_at`` may change though no send ends."""
        window = self._chat(chat_id, now).windows[kind]
        return min(window.next_change(now), self._bot.next_change(now))

    def begin(self, ticket: int, chat_id: int, kind: CallKind, now: float) -> None:
        """Count a send that begins now; ``ticket`` is its number."""
        self._chat(chat_id, now).windows[kind].begin(ticket, now)
        self._bot.begin(ticket, now)

    def end(self, ticket: int, chat_id: int, kind: CallKind, now: float) -> None:
        """Note that a send was answered, refused or given up."""
        self._chat(chat_id, now).windows[kind].end(ticket, now)
        self._bot.end(ticket, now)

    def refused(self, chat_id: int, kind: CallKind, retry_after_s: float, now: float) -> None:
        """Note that the platform answered such a call with the request for a pause.

        The pause is for this chat, this kind and the less important ones; in a group an edit
        counts as a message, with which it shares a window. If messages of another chat are paused
        as well, it is for the whole bot, because then it concerns more than one chat.
        """
        if kind is CallKind.EDIT and chat_id < 0:
            kind = CallKind.MESSAGE
        until = now + retry_after_s
        if kind is CallKind.MESSAGE and any(
            chat.paused_until[kind] > now for other, chat in self._chats.items() if other != chat_id
        ):
            self._bot_paused_until = max(self._bot_paused_until, until)
        paused = self._chat(chat_id, now).paused_until
        for each in _PAUSED[kind]:
            paused[each] = max(paused[each], until)

    def pause_s(self, chat_id: int, now: float, kind: CallKind = CallKind.LIGHT) -> float:
        """Return for how many seconds such calls are paused in this chat by the platform."""
        chat = self._chats.get(chat_id)
        until = max(self._bot_paused_until, chat.paused_until[kind] if chat else 0.0)
        return max(0.0, until - now)

    def _chat(self, chat_id: int, now: float) -> _Chat:
        chat = self._chats.get(chat_id)
        if chat is None:
            if len(self._chats) >= _CHATS_MAX:
                self._forget(now)
            chat = self._chats[chat_id] = _Chat(self._windows(chat_id))
        return chat

    def _windows(self, chat_id: int) -> dict[CallKind, RateWindow]:
        rates = self._rates
        light = RateWindow(*rates.light, rates.reserved_share)
        if chat_id < 0:
            both = RateWindow(*rates.group, rates.reserved_share)
            return {CallKind.MESSAGE: both, CallKind.EDIT: both, CallKind.LIGHT: light}
        return {
            CallKind.MESSAGE: RateWindow(*rates.private, rates.reserved_share),
            CallKind.EDIT: RateWindow(*rates.private_edits, rates.reserved_share),
            CallKind.LIGHT: light,
        }

    def _forget(self, now: float) -> None:
        for chat_id, chat in [*self._chats.items()]:
            windows = chat.windows.values()
            is_paused = max(chat.paused_until.values()) > now
            if not is_paused and all(window.is_idle(now) for window in windows):
                del self._chats[chat_id]


@dataclass(frozen=True, slots=True)
class QueuedSend:
    """A send that waits; tickets count upwards."""

    ticket: int
    chat_id: int
    kind: CallKind
    priority: int
    """Lower goes first."""
    give_up_at: float
    """It is begun by this time (loop seconds) or given up."""
    is_droppable: bool = False


@dataclass(frozen=True, slots=True)
class SendPlan:
    """The sends that begin now, those that are given up, and the time of the next plan.

    ``give_up`` has for each send the seconds for which it would still have to wait. ``look_at`` is
    in loop seconds.
    """

    go: tuple[QueuedSend, ...]
    give_up: tuple[tuple[QueuedSend, float], ...]
    look_at: float


def plan(waiting: Iterable[QueuedSend], flood: RateLimiter, now: float) -> SendPlan:
    """Decide about all waiting sends, best priority first; ``flood`` counts those that begin."""
    go: list[QueuedSend] = []
    give_up: list[tuple[QueuedSend, float]] = []
    look_at = inf
    for one in sorted(waiting, key=lambda one: (one.priority, one.ticket)):
        at = flood.ready_at(one.chat_id, one.kind, now, is_droppable=one.is_droppable)
        if at <= now:
            flood.begin(one.ticket, one.chat_id, one.kind, now)
            go.append(one)
        elif now >= one.give_up_at or one.give_up_at < at < inf:
            give_up.append((one, _UNSURE_WAIT_S if at == inf else at - now))
        else:
            change = at if at < inf else flood.next_change(one.chat_id, one.kind, now)
            look_at = min(look_at, one.give_up_at, change)
    return SendPlan(tuple(go), tuple(give_up), look_at)
