"""The composition root: the steps in which a daemon is built. No decisions are made here.

The steps in ``mail``, ``agents`` and ``borders`` are the only code that knows concrete classes. A
step gets what the earlier ones returned. Where a part must reach one that is built later, it gets a
``Late``, which raises if it is read before that.
"""

from __future__ import annotations

from agentsup.daemon.assembly.agents import build_agents
from agentsup.daemon.assembly.borders import build_borders
from agentsup.daemon.assembly.mail import build_mail
from agentsup.daemon.assembly.parts import AgentParts, Assembly, BorderParts
from agentsup.daemon.runtime.boot_context import BootContext
from agentsup.kit.late import Late


def build(boot_context: BootContext) -> Assembly:
    """Wire one boot. Nothing runs yet."""
    late_agents = Late[AgentParts]("the agents")
    mail = build_mail(boot_context, late_agents)
    assembly = Assembly(boot_context, mail, late_agents, Late[BorderParts]("the borders"))
    assembly.agents.set(build_agents(assembly))
    assembly.borders.set(build_borders(assembly))
    return assembly
