"""The assembly of background work: the hub, its schedules, and the briefing of runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from agentsup.agents.recovery import LASTING
from agentsup.catalogue import words
from agentsup.config import ConfigSnapshot
from agentsup.daemon.assembly.services import running
from agentsup.daemon.runtime.boot_context import BootContext
from agentsup.daemon.runtime.reminder_buttons import offered_in
from agentsup.kit.log import get_logger
from agentsup.mailbox import Mailbox
from agentsup.mailbox.mail import AgentDirectory
from agentsup.mailbox.work import SharedSlots
from agentsup.model.principal import PersonRole
from agentsup.model.task import SkippedSlot, SlotSkipReason
from agentsup.supervision import ChildSpec
from agentsup.tasks import (
    SHOWN_ID_CHARS,
    Briefing,
    Folders,
    Runs,
    Scheduler,
    TaskHub,
    machine_zone,
    rows,
    skip_text,
)

_log = get_logger(__name__)

_PURGE_S = 120.0


class DaemonTasks:
    """Background work, for the daemon's other parts.

    ``hub`` is None if tasks are switched off; ``runs``, by which agents delegate work, always
    exists.
    """

    def __init__(
        self,
        boot_context: BootContext,
        current: Callable[[], ConfigSnapshot],
        mailbox: Mailbox,
        directory: AgentDirectory,
        abort: Callable[[str], Awaitable[None]],
        tell: Callable[[str], Awaitable[None]],
    ) -> None:
        """``abort(message_id)`` ends the turn of a cancelled message, and returns when it has
        ended; ``tell`` sends a text to the operators."""
        self._tell = tell
        folders = Folders(boot_context.home.tasks, boot_context.home.task_dir, boot_context.files)
        self._boot_context, self._folders = boot_context, folders
        self._current = current
        self.background = SharedSlots(lambda: current().settings.tasks.max_parallel)
        self.runs = Runs(mailbox, boot_context.database, abort=abort)
        self.brief = Briefing(
            boot_context.database, folders, timeout_s=lambda: current().settings.tasks.timeout_s
        )
        self.hub: TaskHub | None = None
        if boot_context.snapshot.settings.tasks.enabled:
            self.hub = TaskHub(
                mailbox=mailbox,
                database=boot_context.database,
                clock=boot_context.clock,
                entropy=boot_context.entropy,
                directory=directory,
                runs=self.runs,
                folders=folders,
                abort=abort,
                zone_of=self.zone_of,
                offer=partial(offered_in, boot_context.entropy),
            )

    def zone_of(self, agent_id: str, person: str) -> str:
        """The zone of a person of ``[people]``, else that of the agent, else the machine's."""
        snapshot = self._current()
        listed = snapshot.settings.people.get(person)
        if listed is not None and listed.timezone:
            return listed.timezone
        spec = snapshot.find(self._boot_context.roster.name_of(agent_id))
        return (spec.user_timezone if spec is not None else None) or machine_zone()

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

    async def _paused(self, task_id: str, why: SkippedSlot) -> None:
        task = await self._boot_context.database.read(rows.need_task, task_id, name="tasks.paused")
        people = self._current().settings.people.values()
        language = next(
            (one.language for one in people if one.level >= PersonRole.OPERATOR and one.language),
            "",
        )
        say = words(language)
        lacks_setup = why.reason is SlotSkipReason.SETUP
        await self._tell(
            say(
                "failure.schedule_paused" if lacks_setup else "rights.paused",
                name=task.name,
                id=task_id[-SHOWN_ID_CHARS:],
                why=skip_text(why, say),
            )
        )

    def specs(self) -> tuple[ChildSpec, ...]:
        """The child that starts scheduled tasks, unless tasks are switched off."""
        if self.hub is None:
            return ()
        scheduler = Scheduler(
            self._boot_context.database,
            self._boot_context.clock,
            self.hub.starter,
            self._paused,
            LASTING,
        )
        return (running("schedules", scheduler.run),)
