"""The methods: one table from lower-case names to functions ``(world, bot, call)``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from agentsup.fakes.telegram.methods import chats, editing, profile, sending
from agentsup.fakes.telegram.requests import Call
from agentsup.fakes.telegram.world import Json, World

__all__ = ["HANDLERS", "Handler"]

Handler = Callable[[World, Json, Call], Any]

HANDLERS: Final[dict[str, Handler]] = {
    name.replace("_", ""): handler
    for module in (sending, editing, chats, profile)
    for name, handler in module.HANDLERS.items()
}
