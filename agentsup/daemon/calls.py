"""The way of calls in this daemon: its tools, its stages, and who answers for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from agentsup.agents.host import HostServices
from agentsup.agents.pipeline import Pipeline, Results, default_hooks
from agentsup.agents.pipeline.approval import ModeApprover
from agentsup.agents.processes import ProcessTable
from agentsup.agents.tools import Tools, asking_tool, exec_tool, file_tools, result_tool, web_tool
from agentsup.approvals.gate import Gate, GateSettings
from agentsup.config.snapshot import ConfigSnapshot
from agentsup.daemon.fencing import fencing_of
from agentsup.daemon.ground import Ground
from agentsup.kit.childenv import child_env
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.kit.pool import BoundedPool
from agentsup.mailbox.journal import Journal
from agentsup.mailbox.mailbox import Mailbox
from agentsup.model.hook import Approver
from agentsup.model.principal import PersonRole
from agentsup.model.tool import Tool
from agentsup.observe.redact import Redactor
from agentsup.store.database import Database

_NAMES = ("PATH", "USER", "LOGNAME", "TMPDIR", "TZ", "TERM", "LANG", "LANGUAGE", "LC_ALL")
"""What a program started by ``exec`` knows of our environment; its home is beside the workspace."""


def calls_of(
    ground: Ground,
    current: Callable[[], ConfigSnapshot],
    processes: ProcessTable,
    mailbox: Mailbox,
    tools: Iterable[Tool],
    exhausted: Callable[[str], str | None] = lambda message_id: None,
) -> HostServices:
    """``tools`` beside those of every daemon: files, programs and the web. People are asked about
    dangerous calls by questions of ``mailbox``."""

    def settings() -> GateSettings:
        now = current().settings
        named = any(person.level >= PersonRole.OPERATOR for person in now.people.values())
        return GateSettings(now.limits.approval_s, named)

    gate = Gate(
        ground.database,
        ground.clock,
        mailbox,
        tool_of=lambda name: made.tools.get(name),  # noqa: PLW0108 - made below
        settings=settings,
        redact=ground.redactor.text,
    )
    programs = exec_tool(
        lambda: child_env(_NAMES, source=ground.environ),
        fencing_of(ground.home.root, ground.environ, current),
        ground.files,
    )
    own = (*file_tools(ground.files), programs, web_tool(), asking_tool())
    made = host_services(
        ground.database,
        ground.clock,
        ground.entropy,
        processes,
        (*tools, *own),
        redactor=ground.redactor,
        approver=ground.approver or gate,
        switches=lambda: current().settings.hooks,
        exhausted=exhausted,
        files=ground.files,
    )
    return made


def host_services(
    database: Database,
    clock: Clock,
    entropy: Entropy,
    processes: ProcessTable,
    tools: Iterable[Tool],
    *,
    redactor: Redactor | None = None,
    approver: Approver | None = None,
    switches: Callable[[], Mapping[str, bool]] = dict,
    exhausted: Callable[[str], str | None] = lambda message_id: None,
    files: BoundedPool | None = None,
) -> HostServices:
    """The pipeline over one store, with these tools and the one that reads stored results."""
    results = Results(database, clock, entropy)
    journal = Journal(database, clock)
    who = approver or ModeApprover()
    hooks = default_hooks(
        redactor=redactor or Redactor(),
        results=results,
        approver=who,
        switches=switches,
        exhausted=exhausted,
    )
    return HostServices(
        tools=Tools((*tools, result_tool(results))),
        pipeline=Pipeline(hooks, journal, clock),
        approver=who,
        journal=journal,
        processes=processes,
        files=files or BoundedPool("files"),
    )
