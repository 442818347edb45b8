"""One person, some rooms, one bot at a real homeserver: what the live Matrix tests share."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.support.bound import BOUND_S
from tests.support.daemon_process import DaemonProcess, write_home
from tests.support.matrix_driver import MatrixPerson
from tests.support.matrix_view import Seen
from tests.support.synapse import Synapse

BOT_PASSWORD = "what only the bot knows"
_NUMBERS = itertools.count(1)

HELD: Final[dict[str, Any]] = {
    "tool": {
        "name": "exec",
        "args": {"argv": ["sh", "-c", "until [ -e go ]; do sleep 0.05; done; rm go"]},
    }
}
"""A step that keeps a turn of main until ``let_go``."""


@dataclass(slots=True)
class MatrixCluster:
    """Whoever writes, and where."""

    person: MatrixPerson
    bot: str
    homeserver: str
    """Where the bot finds it."""
    rooms: list[str] = field(default_factory=list)

    def entry(self, **more: Any) -> dict[str, Any]:
        """The agent ``main`` with this bot; ``more`` goes over its ``matrix``."""
        matrix = {
            "homeserver": self.homeserver,
            "user_id": self.bot,
            "password": BOT_PASSWORD,
            "allowed_users": [self.person.user_id],
            **more,
        }
        return {"name": "main", "matrix": matrix}

    def home(
        self, root: Path, rules: Sequence[dict[str, Any]], config: str = "", **entry: Any
    ) -> Path:
        """A home whose ``main`` is this bot; it may run what ``HELD`` does."""
        runs = {"tools": ["*", "exec"], "permission_mode": "bypassPermissions"}
        return write_home(root, [self.entry() | runs | entry], rules, config)

    async def furnish(self, rooms: int = 1) -> None:
        """Make rooms with the bot invited; it joins when it runs."""
        for number in range(rooms):
            self.rooms.append(await self.person.room(invite=[self.bot], name=f"Room {number}"))

    async def joined(self) -> None:
        """Until the bot is in all rooms."""
        for room in self.rooms:
            await self.person.wait_member(room, self.bot, timeout_s=30.0)

    @property
    def room(self) -> str:
        """The first room."""
        return self.rooms[0]

    async def ask(
        self, text: str, answer: str, *, room: str = "", timeout_s: float = BOUND_S
    ) -> Seen:
        """Say something and wait for the answer."""
        room = room or self.room
        said = await self.person.say(room, text)
        return await self.person.wait_text(room, answer, timeout_s, by=self.bot, after=said)

    def answers(self, room: str = "") -> list[str]:
        """What the bot's messages say now."""
        return self.person.texts(room or self.room, by=self.bot)


async def accounts(synapse: Synapse) -> tuple[str, str]:
    """Fresh accounts of a bot and a person, both with ``BOT_PASSWORD``."""
    number = next(_NUMBERS)
    bot, ann = await asyncio.gather(
        *(synapse.register(f"{name}_town{number}", BOT_PASSWORD) for name in ("bot", "ann"))
    )
    return bot, ann


def let_go(daemon: DaemonProcess) -> None:
    """Let the turn of main go on that is ``HELD``, or the next one that will be."""
    (daemon.home / "agents" / "main" / "workspace" / "go").touch()


async def settled(daemon: DaemonProcess, timeout_s: float = 30.0) -> None:
    """Until nothing is under way in the daemon. Raises ``TimeoutError`` that shows what still is."""

    def left() -> list[dict[str, Any]]:
        return [
            *daemon.sql(
                "SELECT message_id, state, attempts, session_id, substr(parts, 1, 200) AS parts"
                " FROM messages WHERE state IN ('queued', 'leased')"
            ),
            *daemon.sql(
                "SELECT outbox_id, kind, attempts, detail, body, conversation FROM outbox"
                " WHERE state = 'pending' OR (state = 'delivered' AND kind = 'notice'"
                " AND body ->> '$.cancel' IS NOT NULL)"  # it says that something waits
            ),
        ]

    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            while left():
                await asyncio.sleep(0.1)
            return
    raise TimeoutError(f"still under way after {timeout_s} s: {left()[:10]}")
