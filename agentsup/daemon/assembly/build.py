"""The composition root: the steps in which a daemon is built. No decisions are made here.

The steps, here and in ``agents`` and ``borders``, are the only code that knows concrete classes. A
step gets what the earlier ones returned. Where a part must reach one that is built later, it gets a
``Late``, which raises if it is read before that.
"""

from __future__ import annotations

from agentsup.agents.memory import AgentMemory
from agentsup.daemon.assembly.agents import build_agents
from agentsup.daemon.assembly.borders import build_borders
from agentsup.daemon.assembly.parts import AgentParts, Assembly, BorderParts, Late, MailParts
from agentsup.daemon.runtime.boot_context import BootContext, hex_digits, mailbox_of
from agentsup.daemon.runtime.ending import Ending
from agentsup.daemon.runtime.people import People
from agentsup.daemon.runtime.roster import RosterDirectory
from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox.mail import AgentMailbox, Dispatcher, InterAgentBus
from agentsup.model.tool import Tool
from agentsup.observe import LiveHub
from agentsup.store import EventLog
from agentsup.supervision import Board, Grace


def build(boot_context: BootContext) -> Assembly:
    """Wire one boot. Nothing runs yet."""
    late_agents = Late[AgentParts]("the agents")
    mail = build_mail(boot_context, late_agents)
    assembly = Assembly(boot_context, mail, late_agents, Late[BorderParts]("the borders"))
    assembly.agents.set(build_agents(assembly))
    assembly.borders.set(build_borders(assembly))
    return assembly


def build_mail(boot_context: BootContext, agents: Late[AgentParts]) -> MailParts:
    """Of the agents, messages need their states, and the tools against which the changed arguments
    of calls are checked."""

    def tool_of(name: str) -> Tool | None:
        return agents().calls.tools.get(name)

    def status_of(agent_id: str) -> tuple[str, str]:
        return agents().running.fleet.status(agent_id)

    def role_problem(role: str) -> str:
        return agents().roles.known_problem(role)

    people = People(boot_context.current)
    mailbox = mailbox_of(boot_context, people.role_now, tool_of)
    directory = RosterDirectory(boot_context.roster, status=status_of, role_problem=role_problem)
    bus = InterAgentBus(
        mailbox=mailbox,
        directory=directory,
        hex_digits=hex_digits(boot_context.entropy),
        redact=boot_context.redactor.text,
    )
    return MailParts(
        tasks=TaskOwner("daemon"),
        ending=Ending(lambda: Grace(drain_s=boot_context.current().settings.limits.drain_s)),
        board=Board(),
        people=people,
        mailbox=mailbox,
        directory=directory,
        bus=bus,
        dispatcher=Dispatcher(mailbox=mailbox, directory=directory, bus=bus),
        history=AgentMailbox(mailbox.database, mailbox.context),
        events=EventLog(boot_context.database),
        live=LiveHub(),
        memory=AgentMemory(
            boot_context.database,
            boot_context.clock,
            boot_context.entropy,
            redact=boot_context.redactor.text,
        ),
    )
