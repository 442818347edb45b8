"""Tool calls in this daemon: the pipeline with its hooks and who approves calls, and agents' own tool
servers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agentsup.agents import AgentStack
from agentsup.agents.mcp import McpServices, ServerProcesses, idle
from agentsup.agents.pipeline import Pipeline, ResultStore, default_hooks
from agentsup.agents.tools import (
    Tools,
    asking_tool,
    exec_tool,
    file_tools,
    result_tool,
    sending_tool,
    web_tool,
)
from agentsup.agents.turn import HostServices
from agentsup.agents.workspace import ProcessTable
from agentsup.approvals import ApprovalGate, GateSettings
from agentsup.config import servers_of
from agentsup.daemon.runtime.boot_context import BootContext
from agentsup.daemon.runtime.engines import fencing_of
from agentsup.kit.childenv import child_env
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.kit.pool import BoundedPool
from agentsup.mailbox import Mailbox
from agentsup.mailbox.work import Journal
from agentsup.model.hook import Approver
from agentsup.model.principal import PersonRole
from agentsup.model.tool import Tool
from agentsup.observe import Redactor
from agentsup.observe.traces import OtelTracer
from agentsup.store import Database

_NAMES = ("PATH", "USER", "LOGNAME", "TMPDIR", "TZ", "TERM", "LANG", "LANGUAGE", "LC_ALL")
"""Variables of the daemon's environment that a program started by ``exec`` gets. Its home is a
directory beside the workspace."""


@dataclass(frozen=True, slots=True)
class CallSettings:
    """The dependencies of deciding about calls, besides the store and the tools."""

    approver: Approver
    redactor: Redactor = field(default_factory=Redactor)
    switches: Callable[[], Mapping[str, bool]] = dict
    """The hooks that are switched on or off, by name."""
    exhausted: Callable[[str], str | None] = lambda message_id: None
    """Returns why the budget of a turn is used up, or None; it gets the message's id."""
    files: BoundedPool = field(default_factory=lambda: BoundedPool("files"))
    tracer: OtelTracer = field(default_factory=OtelTracer)


def calls_of(
    boot_context: BootContext,
    processes: ProcessTable,
    mailbox: Mailbox,
    tools: Iterable[Tool],
    exhausted: Callable[[str], str | None],
    tracer: OtelTracer,
) -> HostServices:
    """The services for tool calls: ``tools`` and those of every daemon (files, programs, web).

    People are asked about dangerous calls by questions of ``mailbox``. ``exhausted(message_id)``
    returns why the budget of a turn is used up, or None.
    """

    def settings() -> GateSettings:
        now = boot_context.current().settings
        named = any(person.level >= PersonRole.OPERATOR for person in now.people.values())
        return GateSettings(now.limits.approval_s, named)

    gate = ApprovalGate(
        boot_context.database,
        mailbox,
        settings=settings,
        redact=boot_context.redactor.text,
    )
    programs = exec_tool(
        lambda: child_env(_NAMES, source=boot_context.environ),
        fencing_of(boot_context),
        boot_context.files,
    )
    sending = sending_tool(boot_context.database, mailbox, boot_context.clock, boot_context.files)
    own = (*file_tools(boot_context.files), sending, programs, web_tool(), asking_tool())
    return host_services(
        boot_context.database,
        boot_context.clock,
        boot_context.entropy,
        processes,
        (*tools, *own),
        CallSettings(
            redactor=boot_context.redactor,
            approver=boot_context.approver or gate,
            switches=lambda: boot_context.current().settings.hooks,
            exhausted=exhausted,
            files=boot_context.files,
            tracer=tracer,
        ),
    )


def host_services(
    database: Database,
    clock: Clock,
    entropy: Entropy,
    processes: ProcessTable,
    tools: Iterable[Tool],
    given: CallSettings,
) -> HostServices:
    """The pipeline over one store, with ``tools`` and the tool that reads stored results."""
    results = ResultStore(database, clock, entropy)
    journal = Journal(database, clock)
    hooks = default_hooks(
        redactor=given.redactor,
        results=results,
        approver=given.approver,
        switches=given.switches,
        exhausted=given.exhausted,
    )
    return HostServices(
        tools=Tools((*tools, result_tool(results))),
        pipeline=Pipeline(hooks, journal, clock),
        approver=given.approver,
        journal=journal,
        processes=processes,
        files=given.files,
        tracer=given.tracer,
    )


class DaemonMcp:
    """The tool servers of agents, for the other parts of the daemon."""

    def __init__(
        self,
        boot_context: BootContext,
        processes: ProcessTable,
        stacks: Callable[[], Iterable[AgentStack]],
    ) -> None:
        self._current = current = boot_context.current
        self._stacks = stacks
        self.services = McpServices(
            clock=boot_context.clock,
            entropy=boot_context.entropy,
            processes=processes,
            home=boot_context.home.root,
            environ=boot_context.environ,
            child_env=lambda: child_env(source=boot_context.environ),
            redact=boot_context.redactor.text,
            memory_mb=lambda: current().settings.limits.process_memory_mb,
            after_imports=boot_context.after_imports,
            fencing=fencing_of(boot_context),
            programs=ServerProcesses(lambda: current().settings.limits.mcp_processes),
            files=boot_context.files,
        )

    def with_tools_of(self, others: Callable[[], Iterable[Tool]]) -> Callable[[], Iterable[Tool]]:
        """The tools of ``others`` and those of all servers, each name of a server's tool once.

        For parts that look tools up without knowing the agent.
        """

        def everything() -> tuple[Tool, ...]:
            in_use = self.services.in_use.values()
            own = {tool.name: tool for tools in in_use for tool in tools()}
            return (*others(), *own.values())

        return everything

    def document(self, name: str) -> dict[str, Any]:
        """The servers of the agent called ``name``, as a JSON document. Raises ``NotFound``."""
        spec = self._current().require(name)
        for stack in self._stacks():
            if stack.spec.name == spec.name and stack.servers is not None:
                servers, refused = stack.servers.documents(), stack.refused_tools()
                for server in servers:
                    server["notes"] += [
                        f"{tool.name} is left out, since the model's provider refuses it: {tool.why}"
                        for tool in refused
                        if tool.name in server["tools"]
                    ]
                return {"agent": spec.name, "servers": servers}
        stopped = [idle(server, "stopped", None) for server in servers_of(spec.mcp).values()]
        return {"agent": spec.name, "servers": stopped}

    def warnings(self) -> tuple[str, ...]:
        """Why servers do not work as declared."""
        found = (stack.servers for stack in self._stacks())
        return tuple(warning for each in found if each is not None for warning in each.warnings())
