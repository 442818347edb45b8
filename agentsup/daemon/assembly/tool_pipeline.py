"""The pipeline of tool calls in this daemon: its tools, its hooks, and who approves calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

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
from agentsup.config import ConfigSnapshot
from agentsup.daemon.runtime.boot_context import BootContext
from agentsup.daemon.runtime.fencing import fencing_of
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
    current: Callable[[], ConfigSnapshot],
    processes: ProcessTable,
    mailbox: Mailbox,
    tools: Iterable[Tool],
    exhausted: Callable[[str], str | None] = lambda message_id: None,
    tracer: OtelTracer | None = None,
) -> HostServices:
    """The services for tool calls: ``tools`` and those of every daemon (files, programs, web).

    People are asked about dangerous calls by questions of ``mailbox``. ``exhausted(message_id)``
    returns why the budget of a turn is used up, or None.
    """

    def settings() -> GateSettings:
        now = current().settings
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
        fencing_of(boot_context.home.root, boot_context.environ, current),
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
            switches=lambda: current().settings.hooks,
            exhausted=exhausted,
            files=boot_context.files,
            tracer=tracer or OtelTracer(),
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
