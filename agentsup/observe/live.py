"""The text of running turns, for those who watch; nothing of it is durable.

A turn's text lies here once, however many watch it. A reader has no queue, only a position in each
turn, so a slow reader costs nothing, gets what it missed in one piece, and gets a fresh picture
where the text it missed is no longer kept. What the turn finally says comes through the outbox.

Two ways to watch: a ``LiveFeed`` gives one conversation as frames; a follower hears of each turn of
an agent in any conversation of a channel and reads its text in place (``LiveTurn``).
"""

from __future__ import annotations

import asyncio
import io
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Self

from agentsup.model.errors import Overloaded

__all__ = ["FeedClosed", "Follower", "LiveFeed", "LiveHub", "LiveLimits", "LiveTurn"]

Place = tuple[str, str]


@dataclass(frozen=True, slots=True)
class LiveLimits:
    """Bounds of what is kept. Text is counted in characters."""

    turn_chars: int = 256 * 1024
    """Of a longer text the older half is forgotten."""
    turn_tools: int = 256
    turns: int = 1024
    feeds: int = 1024
    delta_chars: int = 16 * 1024
    """Longest piece of text in one frame."""
    ended_turns: int = 16
    ended_chars: int = 64 * 1024
    """What one reader may still have to read of turns that ended; beyond it gets a fresh picture."""


class FeedClosed(Exception):
    """The feed was closed; there is nothing more to read."""


@dataclass(frozen=True, slots=True)
class _Tool:
    at: int
    """Position in the turn's text."""
    name: str
    state: str


class _Turn:
    """The text so far. Positions count from the turn's beginning, also after the older half went."""

    def __init__(self, message_id: str, place: Place, limits: LiveLimits) -> None:
        self.message_id = message_id
        self.place = place
        self.ended = False
        self.length = 0
        self.kept_from = 0
        self.tools: deque[_Tool] = deque(maxlen=limits.turn_tools)
        self.tool_count = 0
        self.readers: list[LiveTurn] = []
        self._limits = limits
        self._text = io.StringIO()

    def add(self, text: str) -> None:
        self._text.seek(0, io.SEEK_END)
        self._text.write(text)
        self.length += len(text)
        if self.length - self.kept_from > self._limits.turn_chars:
            keep = self.read(self.length - self._limits.turn_chars // 2, self.length)
            self._text = io.StringIO()
            self._text.write(keep)
            self.kept_from = self.length - len(keep)

    def add_tool(self, name: str, state: str) -> None:
        self.tools.append(_Tool(self.length, name, state))
        self.tool_count += 1

    @property
    def first_tool(self) -> int:
        """Number of the oldest tool step kept."""
        return self.tool_count - len(self.tools)

    def read(self, start: int, end: int) -> str:
        self._text.seek(start - self.kept_from)
        return self._text.read(end - start)

    def picture(self) -> dict[str, Any]:
        return {
            "message_id": self.message_id,
            "text": self.read(self.kept_from, self.length),
            "shortened": self.kept_from > 0,
            "tools": [{"name": tool.name, "state": tool.state} for tool in self.tools],
        }


class LiveTurn:
    """One follower's view of a turn; it may be read for as long as it is held, also after the end.

    A further segment of the same message is another turn with the same ``message_id``.
    """

    def __init__(self, turn: _Turn) -> None:
        self._turn = turn
        self.on_change: Callable[[], None] = _ignore
        """Called after more text, a tool step and the end; must neither block nor raise."""
        turn.readers.append(self)

    @property
    def message_id(self) -> str:
        return self._turn.message_id

    @property
    def conversation(self) -> str:
        """``<channel>:<name>``."""
        return self._turn.place[1]

    @property
    def ended(self) -> bool:
        return self._turn.ended

    @property
    def length(self) -> int:
        """Characters of text so far."""
        return self._turn.length

    @property
    def kept_from(self) -> int:
        """Position of the oldest character still kept."""
        return self._turn.kept_from

    def text(self, start: int = 0) -> str:
        """The text from position ``start`` on, or from where it is still kept."""
        return self._turn.read(max(start, self._turn.kept_from), self._turn.length)

    def leave(self) -> None:
        """Hear no more of it; may be repeated."""
        if self in self._turn.readers:
            self._turn.readers.remove(self)


Follower = Callable[[LiveTurn], None]


def _ignore() -> None:
    return


@dataclass(slots=True)
class _Mark:
    """How far a reader has come in one turn."""

    begun: bool = False
    text: int = 0
    tools: int = 0


class LiveFeed:
    """One reader of one conversation. Frames are JSON objects with a ``type``:

    ``live`` (``turns``: every running turn with its text so far; replaces all shown before; always
    the first frame), ``begin`` (``message_id``; its text starts empty), ``delta`` (``message_id``,
    ``text``), ``tool`` (``message_id``, ``name``, ``state``), ``end`` (``message_id``).
    """

    def __init__(self, hub: LiveHub, place: Place, limits: LiveLimits) -> None:
        self._hub = hub
        self._place = place
        self._limits = limits
        self._marks: dict[_Turn, _Mark] = {}
        self._is_stale = True
        self._is_closed = False
        self._changed = asyncio.Event()

    async def next(self) -> dict[str, Any]:
        """The next frame; waits for one. For one reader at a time. Raises ``FeedClosed``."""
        while True:
            if self._is_closed:
                raise FeedClosed
            frame = self._take()
            if frame is not None:
                return frame
            self._changed.clear()
            await self._changed.wait()

    def close(self) -> None:
        """Stop watching; a reader that waits is told. May be repeated."""
        self._is_closed = True
        self._marks.clear()
        self._hub._forget(self._place, self)  # noqa: SLF001 - the hub gave out this feed
        self._changed.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- told by the hub ---------------------------------------------------------------------------

    def _on_begin(self, turn: _Turn, replaced: _Turn | None) -> None:
        if replaced is not None:
            self._marks.pop(replaced, None)
        if not self._is_stale:
            self._marks[turn] = _Mark()
        self._changed.set()

    def _on_change(self) -> None:
        self._changed.set()

    def _on_end(self) -> None:
        """Keep what was missed of ended turns only while it is little."""
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
            if mark.text < turn.kept_from or mark.tools < turn.first_tool:
                return self._take_picture()
            frame = self._take_from(turn, mark)
            if frame is not None:
                return frame
        return None

    def _take_picture(self) -> dict[str, Any]:
        turns = self._hub._running(self._place)  # noqa: SLF001 - the hub gave out this feed
        self._is_stale = False
        self._marks = {turn: _Mark(True, turn.length, turn.tool_count) for turn in turns}
        return {"type": "live", "turns": [turn.picture() for turn in turns]}

    def _take_from(self, turn: _Turn, mark: _Mark) -> dict[str, Any] | None:
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
            return {"type": "tool", **about, "name": tool.name, "state": tool.state}
        if turn.ended:
            del self._marks[turn]
            return {"type": "end", **about}
        return None


class LiveHub:
    """Where stacks say what their turns produce, and clients watch it. One event loop only.

    ``conversation`` is ``<channel>:<name>`` as in events; turns that belong to none use "".
    """

    LIMITS: Final = LiveLimits()

    def __init__(self, limits: LiveLimits = LIMITS) -> None:
        self._limits = limits
        self._turns: dict[str, _Turn] = {}
        self._places: dict[Place, dict[str, _Turn]] = {}
        self._feeds: dict[Place, set[LiveFeed]] = {}
        self._feed_count = 0
        self._followers: dict[Place, list[Follower]] = {}

    @property
    def turns(self) -> int:
        """Turns that are shown now."""
        return len(self._turns)

    @property
    def feeds(self) -> int:
        """Readers that watch now."""
        return self._feed_count

    # -- from the stacks ---------------------------------------------------------------------------

    def begin(self, agent_id: str, conversation: str, message_id: str) -> None:
        """A turn (or a further segment of it) starts; its text is empty."""
        replaced = self._remove(message_id)
        while len(self._turns) >= self._limits.turns:
            self.end(next(iter(self._turns)))
        turn = _Turn(message_id, (agent_id, conversation), self._limits)
        self._turns[message_id] = turn
        self._places.setdefault(turn.place, {})[message_id] = turn
        for feed in self._feeds.get(turn.place, ()):
            feed._on_begin(turn, replaced)  # noqa: SLF001 - hub and feed are one machine
        for begin in tuple(self._followers.get((agent_id, _channel_of(conversation)), ())):
            begin(LiveTurn(turn))

    def delta(self, message_id: str, text: str) -> None:
        """A piece of text; ignored for a turn that is not running."""
        turn = self._turns.get(message_id)
        if turn is not None and text:
            turn.add(text)
            self._tell(turn)

    def tool(self, message_id: str, name: str, state: str) -> None:
        """A step of a tool call (started, finished, failed); ignored for an unknown turn."""
        turn = self._turns.get(message_id)
        if turn is not None:
            turn.add_tool(name, state)
            self._tell(turn)

    def end(self, message_id: str) -> None:
        """The turn (or segment) is over; harmless when repeated."""
        turn = self._remove(message_id)
        if turn is not None:
            for feed in self._feeds.get(turn.place, ()):
                feed._on_end()  # noqa: SLF001 - as above

    # -- for clients -------------------------------------------------------------------------------

    def subscribe(self, agent_id: str, conversation: str) -> LiveFeed:
        """Watch a conversation from now on; its first frame is the picture of what runs already.

        Raises ``Overloaded`` when too many watch. Close the feed when done.
        """
        if self._feed_count >= self._limits.feeds:
            raise Overloaded(
                f"{self._feed_count} clients are watching, the most allowed; close one first",
                queue="live.feeds",
                size=self._feed_count,
                limit=self._limits.feeds,
            )
        place = (agent_id, conversation)
        feed = LiveFeed(self, place, self._limits)
        self._feeds.setdefault(place, set()).add(feed)
        self._feed_count += 1
        return feed

    def follow(self, agent_id: str, channel: str, begin: Follower) -> Callable[[], None]:
        """Call ``begin`` with each turn in any conversation of ``channel``: at once with those that
        run, later with each that begins. It must neither block nor raise. Returns the way to stop.
        """
        for turn in list(self._turns.values()):
            if turn.place[0] == agent_id and _channel_of(turn.place[1]) == channel:
                begin(LiveTurn(turn))
        followers = self._followers.setdefault((agent_id, channel), [])
        followers.append(begin)

        def unfollow() -> None:
            if begin in followers:
                followers.remove(begin)
            if not followers and self._followers.get((agent_id, channel)) is followers:
                del self._followers[agent_id, channel]

        return unfollow

    def snapshot(self, agent_id: str, conversation: str) -> list[dict[str, Any]]:
        """The running turns of a conversation with their text so far, oldest first."""
        return [turn.picture() for turn in self._running((agent_id, conversation))]

    # -- inside ------------------------------------------------------------------------------------

    def _running(self, place: Place) -> list[_Turn]:
        return list(self._places.get(place, {}).values())

    def _tell(self, turn: _Turn) -> None:
        for feed in self._feeds.get(turn.place, ()):
            feed._on_change()  # noqa: SLF001 - as above
        for reader in tuple(turn.readers):
            reader.on_change()

    def _remove(self, message_id: str) -> _Turn | None:
        turn = self._turns.pop(message_id, None)
        if turn is not None:
            turn.ended = True
            at_place = self._places[turn.place]
            del at_place[message_id]
            if not at_place:
                del self._places[turn.place]
            for reader in tuple(turn.readers):
                reader.on_change()
            turn.readers.clear()
        return turn

    def _forget(self, place: Place, feed: LiveFeed) -> None:
        feeds = self._feeds.get(place)
        if feeds is None or feed not in feeds:
            return
        feeds.remove(feed)
        self._feed_count -= 1
        if not feeds:
            del self._feeds[place]


def _channel_of(conversation: str) -> str:
    return conversation.partition(":")[0]
