"""The roles of this daemon: a live registry of the role files, and the problems in them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable

from agentsup.agents.roles import LiveRoleRegistry, RoleCatalog, Roles, usable, watch_roles
from agentsup.agents.workspace import SharedKnowledge
from agentsup.daemon.assembly.children import permanent_child
from agentsup.daemon.runtime.boot_context import BootContext
from agentsup.daemon.runtime.channels import Channels
from agentsup.daemon.runtime.fleet import Fleet, FleetUnit
from agentsup.daemon.runtime.reconcile import Reconciler
from agentsup.kit.tasks import TaskOwner
from agentsup.model.agent import OFFLINE
from agentsup.model.tool import Tool
from agentsup.supervision import ChildContext, ChildSpec


class DaemonRoles:
    """The live role registry, and what the daemon's other parts need of it."""

    def __init__(
        self,
        boot_context: BootContext,
        tools: Callable[[], Iterable[Tool]],
        *,
        fleet: Fleet,
        reconciler: Reconciler,
        tasks: TaskOwner,
        tell: Callable[[str], Coroutine[None, None, None]],
    ) -> None:
        """``tools`` returns all tools that are registered now; ``tell`` sends a text to an
        operator."""
        self.live_roles = LiveRoleRegistry(
            boot_context.home.roles, tools, boot_context.config_files, on_change=self._changed
        )
        self.turns = Roles(self.live_roles)
        self.catalog = RoleCatalog(self.live_roles)
        self._boot_context = boot_context
        self._fleet = fleet
        self._reconciler = reconciler
        self._tasks = tasks
        self._tell = tell
        self._findings: list[str] | None = None

    def _changed(self) -> None:
        """Roles may have changed: check every agent for a lost role, load a refused edit again
        since it may name a new role, and tell an operator of a file that an edit has broken."""
        self._fleet.check_again()
        registry, known = self.live_roles.known, self._findings
        found = [] if registry is None else [*map(str, registry.findings)]
        new = [] if known is None else [each for each in found if each not in known]
        self._findings = found
        if new:
            text = "\n".join(("A role is not used as its file stands:", *new))
            self._tasks.spawn(self._tell(text), name="tell:roles")
        if self._reconciler.config_error:
            self._tasks.spawn(self._reconciler.reload(), name="reload:roles")

    def known_problem(self, role: str) -> str:
        """Why no agent can take that role; empty if it can, or before the roles were first read."""
        registry = self.live_roles.known
        return usable(role, registry)[1] if registry is not None else ""

    def degraded_reason(self, unit: FleetUnit | None, channels: Channels) -> str | None:
        """Why an agent is degraded: a bot that is not connected, a missing role, an unusable script,
        or a model that can't answer."""
        if unit is None:
            return None
        problem = self.known_problem(unit.spec.role) if unit.spec.role else ""
        role = f"it has no tools: {problem}" if problem else None
        script = ""
        if unit.engine == OFFLINE:
            script = self._boot_context.scripts.known_problem(
                unit.spec, self._boot_context.home.root
            )
        engine = unit.stack.engine_problem if unit.stack is not None else ""
        found = (channels.problem(unit.agent_id), role, script, engine)
        return "; ".join(filter(None, found)) or None

    def spec(self) -> ChildSpec:
        """The child that watches for edits of roles."""

        async def life(ctx: ChildContext) -> None:
            ctx.ready()
            await watch_roles(self.live_roles, stop=ctx.draining, clock=self._boot_context.clock)

        return permanent_child("roles", life)

    async def problem(self, name: str) -> str:
        """Why an agent can't take the role of that name; empty if it can."""
        return usable(name, await self.live_roles.registry())[1]

    def warnings(self, knowledge: SharedKnowledge, channels: Channels) -> tuple[str, ...]:
        """Warnings for the daemon's status: shared memory, channels, broken roles, and the agents
        that have no tools because of one."""
        found = [*knowledge.problems, *channels.warnings()]
        registry = self.live_roles.known
        if registry is None:
            return tuple(found)
        found += map(str, registry.findings)
        specs = self._boot_context.current().specs.values()
        problems = [(spec.name, self.known_problem(spec.role)) for spec in specs if spec.role]
        found += [f"{name} has no tools: {problem}" for name, problem in problems if problem]
        return tuple(found)
