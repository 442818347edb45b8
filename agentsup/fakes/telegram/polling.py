"""getUpdates: the long poll, with the server's rules for offsets and for two pollers.

An offset confirms everything below it when it arrives, not when it is answered. One that lies far
ahead of the newest update is taken for a mistake of another numbering and confirms nothing, so
after a restart of the numbers a client with an old offset still gets everything. Of two pollers on
one token the older is refused at once.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from agentsup.fakes.telegram.refusals import refused
from agentsup.fakes.telegram.requests import Call
from agentsup.fakes.telegram.rules import LIMITS, UPDATE_TYPES
from agentsup.fakes.telegram.world import Json, World
from agentsup.kit.clock import Clock


class _Poll:
    """One waiting request."""

    __slots__ = ("is_ousted",)

    def __init__(self) -> None:
        self.is_ousted = False


class Polls:
    """At most one waiting poll per bot."""

    def __init__(self, clock: Clock) -> None:
        """Time-outs run on ``clock``'s loop time."""
        self._clock = clock
        self._waiting: dict[int, _Poll] = {}

    async def poll(self, world: World, bot: Json, call: Call) -> list[Json]:
        """The updates from the offset on, waiting for one up to the time-out."""
        _remember_allowed(world, bot, call)
        limit = min(max(call.number("limit", 100), 1), LIMITS["updates_per_poll"])
        timeout_s = min(max(call.number("timeout"), 0), LIMITS["poll_s"])
        _confirm(world, bot, call.number("offset"))
        poll = _Poll()
        older = self._waiting.get(bot["id"])
        self._waiting[bot["id"]] = poll
        if older is not None:
            older.is_ousted = True
            world.ring(bot["id"])
        token = bot["token"]
        deadline = self._clock.monotonic() + timeout_s
        try:
            while True:
                if poll.is_ousted:
                    raise refused("conflict")
                if bot["revoked"] or bot["token"] != token:
                    raise refused("unauthorized")
                found = [entry["update"] for entry in world.pending(bot)[:limit]]
                left_s = deadline - self._clock.monotonic()
                if found or left_s <= 0:
                    return found
                with suppress(TimeoutError):
                    async with asyncio.timeout(left_s):
                        await world.bell(bot["id"]).wait()
        finally:
            if self._waiting.get(bot["id"]) is poll:
                del self._waiting[bot["id"]]


def _remember_allowed(world: World, bot: Json, call: Call) -> None:
    """allowed_updates stays until it is given again; an empty list means the default."""
    wanted = call.args.get("allowed_updates")
    if not isinstance(wanted, list):
        return
    known = [kind for kind in wanted if kind in UPDATE_TYPES] or None
    if known != bot["allowed_updates"]:
        bot["allowed_updates"] = known
        world.put("bot", bot["id"], bot)


def _confirm(world: World, bot: Json, offset: int) -> None:
    if offset > bot["next_update_id"] + LIMITS["offset_ahead"]:
        return
    if offset > 0:
        world.confirm(bot, offset)
    elif offset < 0:
        queue = world.pending(bot)
        if len(queue) > -offset:
            world.confirm(bot, queue[offset]["update"]["update_id"])
