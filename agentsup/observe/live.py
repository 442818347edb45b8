"""The text of running turns for live readers; nothing of it is durable.

A turn's text is stored once, for all its readers. A reader has no queue, only a position in each
turn: a slow reader costs nothing and gets missed text in one piece, or a complete new picture if
that text is no longer stored. The final answer of a turn is delivered through the outbox.

There are two interfaces. A ``LiveFeed`` gives one conversation as frames. A follower is called with
each turn of an agent in any conversation of a channel, and reads its text in place (``LiveTurn``).
"""

from __future__ import annotations

import asyncio
import io
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Self

from agentsup.model.errors import Overloaded

ConversationKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class LiveLimits:
    """Bounds of the stored data. Text is counted in characters."""

    turn_chars: int = 256 * 1024
    """Of a longer text the older half is dropped."""
    turn_tools: int = 256
    turns: int = 1024
    feeds: int = 1024
    delta_chars: int = 16 * 1024
    """The longest text in one frame."""
    ended_turns: int = 16
    ended_chars: int = 64 * 1024
    """The most unread text of ended turns for one reader; a reader with more gets a new picture."""


class FeedClosed(Exception):
    """The feed was closed; it gives no more frames."""


@dataclass(frozen=True, slots=True)
class _Tool:
    at: int
    """Position in the turn's text."""
    name: str
    state: str
    to: str
    """The agent that is asked, or empty."""

    @property
    def shown(self) -> dict[str, str]:
        step = {"name": self.name, "state": self.state}
        return step | {"to": self.to} if self.to else step


class LiveTurn:
    """The text of a turn so far; readable while it is referenced, even after the end.

    Positions count from the turn's beginning, even after the older half was dropped. A further
    segment of the same message is another turn with the same ``message_id``.
    """

    def __init__(self, message_id: str, key: ConversationKey, limits: LiveLimits) -> None:
        self.message_id = message_id
        self.key = key
        self.ended = False
        self.length = 0
        """The number of characters of text so far."""
        self.stored_from = 0
        """Position of the oldest stored character."""
        self.tools: deque[_Tool] = deque(maxlen=limits.turn_tools)
        self.tool_count = 0
        self._limits = limits
        self._text = io.StringIO()
        self._listeners: list[Callable[[], None]] = []

    @property
    def conversation(self) -> str:
        """``<channel>:<name>``."""
        return self.key[1]

    def listen(self, on_change: Callable[[], None]) -> None:
        """Call ``on_change`` after more text, a tool step and the end; it must neither block nor
        raise."""
        self._listeners.append(on_change)

    def unlisten(self, on_change: Callable[[], None]) -> None:
        """Call ``on_change`` no more. A second call does nothing."""
        if on_change in self._listeners:
            self._listeners.remove(on_change)

    def text(self, start: int = 0) -> str:
        """The text from position ``start`` on, or from the oldest stored position."""
        return self.read(max(start, self.stored_from), self.length)

    # -- calls from the hub and its feeds ----------------------------------------------------------

    def add(self, text: str) -> None:
        self._text.seek(0, io.SEEK_END)
        self._text.write(text)
        self.length += len(text)
        if self.length - self.stored_from > self._limits.turn_chars:
            keep = self.read(self.length - self._limits.turn_chars // 2, self.length)
            self._text = io.StringIO()
            self._text.write(keep)
            self.stored_from = self.length - len(keep)

    def add_tool(self, name: str, state: str, to: str) -> None:
        self.tools.append(_Tool(self.length, name, state, to))
        self.tool_count += 1

    def end(self) -> None:
        self.ended = True
        self.changed()
        self._listeners.clear()

    def changed(self) -> None:
        for on_change in tuple(self._listeners):
            on_change()

    @property
    def first_tool(self) -> int:
        """The number of the oldest stored tool step."""
        return self.tool_count - len(self.tools)

    def read(self, start: int, end: int) -> str:
        self._text.seek(start - self.stored_from)
        return self._text.read(end - start)

    def picture(self) -> dict[str, Any]:
        return {
            "message_id": self.message_id,
            "text": self.text(),
            "shortened": self.stored_from > 0,
            "tools": [tool.shown for tool in self.tools],
        }


Follower = Callable[[LiveTurn], None]


@dataclass(slots=True)
class _ReadPosition:
    """A reader's position in one turn."""

    begun: bool = False
    text: int = 0
    tools: int = 0


class LiveFeed:
    """One reader of one conversation. Frames are JSON objects with a ``type``:

    ``live`` (``turns``: every running turn with its text so far; replaces all shown before; always
    the first frame), ``begin`` (``message_id``; its text starts empty), ``delta`` (``message_id``,
    ``text``), ``tool`` (``message_id``, ``name``, ``state``), ``end`` (``message_id``), ``retry``
    (``message_id`` and the facts of ``LiveHub.retry``; only for those who watch at that moment).
    """

    def __init__(self, hub: LiveHub, conversation: ConversationKey, limits: LiveLimits) -> None:
        self._hub = hub
        self._conversation = conversation
        self._limits = limits
        self._marks: dict[LiveTurn, _ReadPosition] = {}
        self._retries: deque[dict[str, Any]] = deque(maxlen=limits.ended_turns)
        self._is_stale = True
        self._is_closed = False
        self._changed = asyncio.Event()

    async def next(self) -> dict[str, Any]:
        """The next frame; waits for it. For one reader at a time. Raises ``FeedClosed``."""
        while True:
            if self._is_closed:
                raise FeedClosed
            frame = self._take()
            if frame is not None:
                return frame
            self._changed.clear()
            await self._changed.wait()

    def close(self) -> None:
        """End the feed and wake a waiting reader. A second call does nothing."""
        self._is_closed = True
        self._marks.clear()
        self._hub._forget(self._conversation, self)  # noqa: SLF001 - the hub gave out this feed
        self._changed.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- calls from the hub ------------------------------------------------------------------------

    def _on_begin(self, turn: LiveTurn, replaced: LiveTurn | None) -> None:
        if replaced is not None:
            self._marks.pop(replaced, None)
        if not self._is_stale:
            self._marks[turn] = _ReadPosition()
        self._changed.set()

    def _on_retry(self, frame: dict[str, Any]) -> None:
        self._retries.append(frame)
        self._changed.set()

    def _on_end(self) -> None:
        """Drop the unread text of ended turns if it is more than the limits."""
        ended = [(turn, mark) for turn, mark in self._marks.items() if turn.ended]
        unread = sum(turn.length - mark.text for turn, mark in ended)
        if len(ended) > self._limits.ended_turns or unread > self._limits.ended_chars:
            self._is_stale = True
            self._marks.clear()
        self._changed.set()

    # -- frames ------------------------------------------------------------------------------------

    def _take(self) -> dict[str, Any] | None:
        if self._is_stale:
            return self._take_picture()
        for turn, mark in self._marks.items():
            if mark.text < turn.stored_from or mark.tools < turn.first_tool:
                return self._take_picture()
            frame = self._take_from(turn, mark)
            if frame is not None:
                return frame
        return self._retries.popleft() if self._retries else None

    def _take_picture(self) -> dict[str, Any]:
        turns = self._hub._running(self._conversation)  # noqa: SLF001 - the hub gave out this feed
        self._is_stale = False
        self._marks = {turn: _ReadPosition(True, turn.length, turn.tool_count) for turn in turns}
        return {"type": "live", "turns": [turn.picture() for turn in turns]}

    def _take_from(self, turn: LiveTurn, mark: _ReadPosition) -> dict[str, Any] | None:
        about = {"message_id": turn.message_id}
        if not mark.begun:
            mark.begun = True
            return {"type": "begin", **about}
        tool = None
        if mark.tools < turn.tool_count:
            tool = turn.tools[mark.tools - turn.first_tool]
        until = min(tool.at if tool else turn.length, mark.text + self._limits.delta_chars)
        if mark.text < until:
            text = turn.read(mark.text, until)
            mark.text = until
            return {"type": "delta", **about, "text": text}
        if tool is not None:
            mark.tools += 1
            return {"type": "tool", **about, **tool.shown}
        if turn.ended:
            del self._marks[turn]
            return {"type": "end", **about}
        return None


class LiveHub:
    """Takes the output of turns from stacks and gives it to clients. For one event loop only.

    ``conversation`` is ``<channel>:<name>`` as in events; turns without one use "".
    """

    LIMITS: Final = LiveLimits()

    def __init__(self, limits: LiveLimits = LIMITS) -> None:
        self._limits = limits
        self._turns: dict[str, LiveTurn] = {}
        self._feeds: dict[ConversationKey, set[LiveFeed]] = {}
        self._feed_count = 0
        self._followers: dict[ConversationKey, list[Follower]] = {}

    # -- calls from stacks -------------------------------------------------------------------------

    def begin(self, agent_id: str, conversation: str, message_id: str) -> None:
        """Start a turn (or a further segment of it) with an empty text."""
        replaced = self._remove(message_id)
        while len(self._turns) >= self._limits.turns:
            self.end(next(iter(self._turns)))
        turn = LiveTurn(message_id, (agent_id, conversation), self._limits)
        self._turns[message_id] = turn
        for feed in self._feeds.get(turn.key, ()):
            feed._on_begin(turn, replaced)  # noqa: SLF001 - hub and feed are one unit
        for begin in tuple(self._followers.get((agent_id, _channel_of(conversation)), ())):
            begin(turn)

    def delta(self, message_id: str, text: str) -> None:
        """Add text; ignored for a turn that is not running."""
        turn = self._turns.get(message_id)
        if turn is not None and text:
            turn.add(text)
            self._tell(turn)

    def tool(self, message_id: str, name: str, state: str, to: str = "") -> None:
        """Add a step of a tool call (started, finished, failed), with the agent ``to`` that it asks;
        ignored for an unknown turn."""
        turn = self._turns.get(message_id)
        if turn is not None:
            turn.add_tool(name, state, to)
            self._tell(turn)

    def end(self, message_id: str) -> None:
        """End the turn (or segment). A second call does nothing."""
        turn = self._remove(message_id)
        if turn is not None:
            for feed in self._feeds.get(turn.key, ()):
                feed._on_end()  # noqa: SLF001 - as above

    def retry(self, agent_id: str, conversation: str, message_id: str, **facts: Any) -> None:
        """Say that an attempt on the message has failed and another one follows. ``facts``:
        ``why`` (the engine's sentence), ``kind`` (of the failure), ``attempt`` (the number of the
        next one) and ``most``."""
        frame = {"type": "retry", "message_id": message_id, **facts}
        for feed in self._feeds.get((agent_id, conversation), ()):
            feed._on_retry(frame)  # noqa: SLF001 - as above

    # -- for clients -------------------------------------------------------------------------------

    def subscribe(self, agent_id: str, conversation: str) -> LiveFeed:
        """Watch a conversation from now on; the first frame holds the turns that already run.

        Raises ``Overloaded`` if there are too many feeds. Close the feed when done.
        """
        if self._feed_count >= self._limits.feeds:
            raise Overloaded(
                f"{self._feed_count} clients are watching, the most allowed; close one first",
                queue="live.feeds",
                size=self._feed_count,
                limit=self._limits.feeds,
            )
        key = (agent_id, conversation)
        feed = LiveFeed(self, key, self._limits)
        self._feeds.setdefault(key, set()).add(feed)
        self._feed_count += 1
        return feed

    def follow(self, agent_id: str, channel: str, begin: Follower) -> Callable[[], None]:
        """Call ``begin`` with each turn in any conversation of ``channel``: at once with running
        ones, later with each new one. It must neither block nor raise. Returns a callable that
        stops this."""
        for turn in list(self._turns.values()):
            if turn.key[0] == agent_id and _channel_of(turn.conversation) == channel:
                begin(turn)
        followers = self._followers.setdefault((agent_id, channel), [])
        followers.append(begin)

        def unfollow() -> None:
            if begin in followers:
                followers.remove(begin)
            if not followers and self._followers.get((agent_id, channel)) is followers:
                del self._followers[agent_id, channel]

        return unfollow

    # -- inside ------------------------------------------------------------------------------------

    def _running(self, key: ConversationKey) -> list[LiveTurn]:
        return [turn for turn in self._turns.values() if turn.key == key]

    def _tell(self, turn: LiveTurn) -> None:
        for feed in self._feeds.get(turn.key, ()):
            feed._changed.set()  # noqa: SLF001 - as above
        turn.changed()

    def _remove(self, message_id: str) -> LiveTurn | None:
        turn = self._turns.pop(message_id, None)
        if turn is not None:
            turn.end()
        return turn

    def _forget(self, key: ConversationKey, feed: LiveFeed) -> None:
        feeds = self._feeds.get(key)
        if feeds is None or feed not in feeds:
            return
        feeds.remove(feed)
        self._feed_count -= 1
        if not feeds:
            del self._feeds[key]


def _channel_of(conversation: str) -> str:
    return conversation.partition(":")[0]
