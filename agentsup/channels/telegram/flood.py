"""How much may be sent when: windows and pauses of one bot and its chats. Decisions only.

A send counts from its beginning until a span after its *end*: it may have reached the platform at
any instant between the two, and so the platform, counting arrivals, never counts more than is
allowed, however unevenly the network delivers. Time is passed in (seconds of the loop's clock).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

__all__ = ["Flood", "Kind", "Plan", "Rates", "Waiting", "Window", "kind_of", "plan"]

_STUCK_S = 5.0
"""A send without an end counts as arrived after this long; else one that hangs would hold its
chat for as long as it hangs."""
_CHATS_MAX = 512
_UNSURE_WAIT_S = 1.0


class Kind(StrEnum):
    """What a call counts as."""

    MESSAGE = "message"
    EDIT = "edit"
    LIGHT = "light"
    """Typing, drafts, reactions, deletions: no message to anybody."""


_PAUSED: Mapping[Kind, tuple[Kind, ...]] = {
    Kind.MESSAGE: (Kind.MESSAGE, Kind.EDIT, Kind.LIGHT),
    Kind.EDIT: (Kind.EDIT, Kind.LIGHT),
    Kind.LIGHT: (Kind.LIGHT,),
}
"""What a 429 on a call silences in its chat: its own kind and what matters less, so that no
decoration ever holds up an answer. A pause of one kind is never longer than that of a lesser."""

_LIGHT = frozenset(
    {
        "deleteMessage",
        "deleteMessages",
        "sendChatAction",
        "sendMessageDraft",
        "setMessageReaction",
    }
)


def kind_of(method: str) -> Kind:
    """What calls of this method count as."""
    if method in _LIGHT:
        return Kind.LIGHT
    return Kind.EDIT if method.startswith("edit") else Kind.MESSAGE


@dataclass(frozen=True, slots=True)
class Rates:
    """At most so many within so many seconds: ``(limit, span_s)``."""

    bot: tuple[int, float] = (30, 1.0)
    group: tuple[int, float] = (20, 60.0)
    """Messages and edits together."""
    private: tuple[int, float] = (3, 3.0)
    """Messages: one a second, three at once."""
    private_edits: tuple[int, float] = (3, 3.0)
    light: tuple[int, float] = (10, 5.0)
    kept_free: float = 0.4
    """This share of each window is closed to what may be dropped."""


class Window:
    """At most `limit` arrivals in any `span_s` seconds."""

    def __init__(self, limit: int, span_s: float, kept_free: float = 0.0) -> None:
        self.limit = limit
        self.span_s = span_s
        self._for_droppable = max(1, limit - int(limit * kept_free))
        self._ended: list[float] = []
        self._flying: dict[int, float] = {}

    def ready_at(self, now: float, *, is_droppable: bool = False) -> float:
        """The earliest time of another send, as far as it is known; infinite if an end of those
        under way must come first."""
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
        """It has been answered, or given up."""
        if self._flying.pop(ticket, None) is not None:
            insort(self._ended, now)

    def is_idle(self, now: float) -> bool:
        """Whether nothing is counted."""
        self._settle(now)
        return not (self._ended or self._flying)

    def next_change(self, now: float) -> float:
        """When a send under way counts as arrived at the latest; infinite if none is."""
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
    windows: dict[Kind, Window]
    paused_until: dict[Kind, float] = field(default_factory=lambda: dict.fromkeys(Kind, 0.0))


class Flood:
    """What one bot has sent lately, and where it was told to wait.

    It outlives the connections of a bot: the platform goes on counting while a bot is rebuilt. It
    does not outlive the process, and need not. The part of the outbox that was refused keeps in
    its row when it may go again, and nothing passes it in its conversation, so however often the
    process is killed within a pause, that conversation is left alone. What else there is to say in
    the chat (another topic, a sign of life) learns of the pause by one refusal in the next
    process, which has no effect and burns no attempt.
    """

    def __init__(self, rates: Rates | None = None) -> None:
        self._rates = rates or Rates()
        self._bot = Window(*self._rates.bot, self._rates.kept_free)
        self._bot_paused_until = 0.0
        self._chats: dict[int, _Chat] = {}
        self._last_ticket = 0

    def new_ticket(self) -> int:
        """A number for the next send; numbers go upwards."""
        self._last_ticket += 1
        return self._last_ticket

    def ready_at(self, chat_id: int, kind: Kind, now: float, *, is_droppable: bool) -> float:
        """The earliest time at which such a send may begin; `now` if at once, infinite if that
        depends on sends under way."""
        chat = self._chat(chat_id, now)
        window = chat.windows[kind]
        return max(
            now,
            chat.paused_until[kind],
            self._bot_paused_until,
            window.ready_at(now, is_droppable=is_droppable),
            self._bot.ready_at(now, is_droppable=is_droppable),
        )

    def next_change(self, chat_id: int, kind: Kind, now: float) -> float:
        """When an infinite answer of `ready_at` may change without an end."""
        window = self._chat(chat_id, now).windows[kind]
        return min(window.next_change(now), self._bot.next_change(now))

    def begin(self, ticket: int, chat_id: int, kind: Kind, now: float) -> None:
        """Count a send that begins now; `ticket` is its own."""
        self._chat(chat_id, now).windows[kind].begin(ticket, now)
        self._bot.begin(ticket, now)

    def end(self, ticket: int, chat_id: int, kind: Kind, now: float) -> None:
        """The send was answered, refused or given up."""
        self._chat(chat_id, now).windows[kind].end(ticket, now)
        self._bot.end(ticket, now)

    def refused(self, chat_id: int, kind: Kind, retry_after_s: float, now: float) -> None:
        """The platform asked for a pause in answer to such a call.

        It is this chat's, for this kind and the lesser ones; in a group an edit counts as the
        message it shares a window with. It is the whole bot's if messages of another chat are
        still in a pause, because then it is about more than a chat.
        """
        if kind is Kind.EDIT and chat_id < 0:
            kind = Kind.MESSAGE
        until = now + retry_after_s
        if kind is Kind.MESSAGE and any(
            chat.paused_until[kind] > now for other, chat in self._chats.items() if other != chat_id
        ):
            self._bot_paused_until = max(self._bot_paused_until, until)
        paused = self._chat(chat_id, now).paused_until
        for each in _PAUSED[kind]:
            paused[each] = max(paused[each], until)

    def pause_s(self, chat_id: int, now: float, kind: Kind = Kind.LIGHT) -> float:
        """Seconds for which such calls are to leave this chat alone, because the platform said
        so."""
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

    def _windows(self, chat_id: int) -> dict[Kind, Window]:
        rates = self._rates
        light = Window(*rates.light, rates.kept_free)
        if chat_id < 0:
            both = Window(*rates.group, rates.kept_free)
            return {Kind.MESSAGE: both, Kind.EDIT: both, Kind.LIGHT: light}
        return {
            Kind.MESSAGE: Window(*rates.private, rates.kept_free),
            Kind.EDIT: Window(*rates.private_edits, rates.kept_free),
            Kind.LIGHT: light,
        }

    def _forget(self, now: float) -> None:
        for chat_id, chat in [*self._chats.items()]:
            windows = chat.windows.values()
            is_paused = max(chat.paused_until.values()) > now
            if not is_paused and all(window.is_idle(now) for window in windows):
                del self._chats[chat_id]


@dataclass(frozen=True, slots=True)
class Waiting:
    """A send that waits for its turn; tickets count upwards."""

    ticket: int
    chat_id: int
    kind: Kind
    priority: int
    """Lower goes first."""
    give_up_at: float
    """It goes by then or not at all."""
    is_droppable: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """Who goes now, who gives up (and how long it would still have to wait), when to look again."""

    go: tuple[Waiting, ...]
    give_up: tuple[tuple[Waiting, float], ...]
    look_at: float


def plan(waiting: Iterable[Waiting], flood: Flood, now: float) -> Plan:
    """Decide about all that wait, best first; who goes is counted in `flood`."""
    go: list[Waiting] = []
    give_up: list[tuple[Waiting, float]] = []
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
    return Plan(tuple(go), tuple(give_up), look_at)
