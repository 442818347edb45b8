"""What is closed to the programs of agents in this daemon, as it is set now."""

from __future__ import annotations

from collections.abc import Callable

from agentsup.config.snapshot import ConfigSnapshot
from agentsup.daemon.ground import Ground
from agentsup.engines.child.fencing import Fencing


def fencing_of(ground: Ground, current: Callable[[], ConfigSnapshot]) -> Callable[[], Fencing]:
    """The home is closed, where all that is secret and all that is others' lies, and what
    ``fence.closed`` names."""

    def fencing() -> Fencing:
        settings = current().settings.fence
        if settings.mode == "off":
            return Fencing()
        return Fencing(
            (str(ground.home.root), *settings.paths(ground.environ)),
            is_required=settings.mode == "required",
        )

    return fencing
