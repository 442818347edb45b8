"""Mail between agents, put together: bus, dispatcher, what was read, and who hears of whom."""

from __future__ import annotations

from agentsup.agents.tools.mailbox import mailbox_tools
from agentsup.agents.tools.peers import Askers
from agentsup.daemon.ground import Ground, hex_digits
from agentsup.mailbox.bus import InterAgentBus
from agentsup.mailbox.dispatcher import Dispatcher
from agentsup.mailbox.history import MailHistory
from agentsup.mailbox.mailbox import Mailbox
from agentsup.mailbox.subscriptions import Subscriptions
from agentsup.model.tool import Tool
from agentsup.model.trace import Tracer


class DaemonPost:
    """What the daemon's parts take of it. Subscriptions are those of the roster at the moment."""

    def __init__(self, ground: Ground, mailbox: Mailbox) -> None:
        roster = ground.roster
        self._roster = roster
        self.bus = InterAgentBus(
            mailbox=mailbox,
            database=ground.database,
            directory=roster,
            hex_digits=hex_digits(ground.entropy),
            redact=ground.redactor.text,
        )
        self.history = MailHistory(ground.database, ground.clock)
        self.dispatcher = Dispatcher(
            mailbox=mailbox, database=ground.database, directory=roster, bus=self.bus
        )
        follower = Subscriptions(mailbox.desk, lambda: roster.watchers)
        mailbox.desk.followers.append(follower)

    def tools(self, askers: Askers, tracer: Tracer) -> tuple[Tool, ...]:
        """The tools with which agents write to each other."""
        return mailbox_tools(self.dispatcher, self.history, self._roster, askers, tracer)
