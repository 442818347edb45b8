"""What each method does: one table from lower-case names to functions `(world, bot, call)`."""

from collections.abc import Callable
from typing import Any, Final

from agentsup.testing.telegram.methods import editing, places, profile, sending
from agentsup.testing.telegram.requests import Call
from agentsup.testing.telegram.world import Json, World

__all__ = ["HANDLERS", "Handler"]

Handler = Callable[[World, Json, Call], Any]

HANDLERS: Final[dict[str, Handler]] = {
    name.replace("_", ""): handler
    for module in (sending, editing, places, profile)
    for name, handler in module.HANDLERS.items()
}
