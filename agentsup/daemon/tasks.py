"""Background work, put together: the hub, what keeps its schedules, and what its runs are told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from agentsup.config.snapshot import ConfigSnapshot
from agentsup.daemon.ground import Ground
from agentsup.daemon.services import FOR_EVER, SHORT
from agentsup.mailbox.mailbox import Mailbox
from agentsup.mailbox.slots import SharedLane
from agentsup.observe.logging import get_logger
from agentsup.supervision.policy import Restart
from agentsup.supervision.spec import ChildContext, ChildSpec
from agentsup.tasks.brief import Briefing
from agentsup.tasks.folders import Folders
from agentsup.tasks.hub import TaskHub
from agentsup.tasks.runs import Runs
from agentsup.tasks.scheduler import Scheduler
from agentsup.tasks.zones import machine_zone

_log = get_logger(__name__)

_PURGE_S = 120.0


class DaemonTasks:
    """What the daemon's parts take of background work. ``hub`` is None where tasks are switched
    off; runs, by which agents hand work on, are always there."""

    def __init__(
        self,
        ground: Ground,
        current: Callable[[], ConfigSnapshot],
        mailbox: Mailbox,
        abort: Callable[[str], Awaitable[None]],
    ) -> None:
        """``abort`` ends the turn of a cancelled message, and returns when it is gone."""
        folders = Folders(ground.home.tasks, ground.home.task_dir, ground.files)
        self._ground, self._folders = ground, folders
        self._current = current
        self.background = SharedLane(lambda: current().settings.tasks.max_parallel)
        self.runs = Runs(mailbox, ground.database, abort=abort)
        self.brief = Briefing(
            ground.database, folders, timeout_s=lambda: current().settings.tasks.timeout_s
        ).of
        self.hub: TaskHub | None = None
        if ground.snapshot.settings.tasks.enabled:
            self.hub = TaskHub(
                mailbox=mailbox,
                database=ground.database,
                clock=ground.clock,
                entropy=ground.entropy,
                directory=ground.roster,
                runs=self.runs,
                folders=folders,
                abort=abort,
                zone_of=lambda agent_id: _zone_of(current(), ground.roster.name_of(agent_id)),
            )

    async def purge(self, now_ms: int) -> None:
        """Remove folders of tasks that were deleted ``tasks.keep_days`` days before ``now_ms``."""
        days = self._current().settings.tasks.keep_days
        before_s = now_ms / 1000 - days * 86_400
        try:
            step = partial(self._folders.purge, before_s)
            gone = await self._folders.run(step, key="deleted tasks", limit_s=_PURGE_S)
        except OSError as error:
            _log.warning("folders of deleted tasks could not be removed", reason=str(error))
            return
        if gone:
            _log.info("removed folders of deleted tasks", days=days, tasks=gone)

    def specs(self) -> tuple[ChildSpec, ...]:
        """The child that keeps schedules, unless tasks are switched off."""
        if self.hub is None:
            return ()
        scheduler = Scheduler(self._ground.database, self._ground.clock, self.hub.starter)

        async def life(ctx: ChildContext) -> None:
            await scheduler.run(ctx.ready, ctx.draining)

        return (ChildSpec("schedules", life, Restart.PERMANENT, grace=SHORT, policy=FOR_EVER),)


def _zone_of(snapshot: ConfigSnapshot, name: str) -> str:
    spec = snapshot.find(name)
    return (spec.user_timezone if spec is not None else None) or machine_zone()
