"""What turns rest on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from agentsup.agents.budget.spending import Spending
from agentsup.agents.host import HostServices
from agentsup.agents.memory.before_turn import BeforeTurn
from agentsup.agents.recovery.breakers import Breakers
from agentsup.agents.restarts import Restarts
from agentsup.agents.roles.bounds import Roles
from agentsup.agents.served import ServedTurns
from agentsup.agents.surroundings import RunTokens
from agentsup.kit.clock import Clock
from agentsup.mailbox.journal import Journal
from agentsup.mailbox.mailbox import Mailbox
from agentsup.model.message import Message
from agentsup.model.trace import UNTRACED, Tracer
from agentsup.observe.live import LiveHub
from agentsup.observe.redact import Redactor
from agentsup.store.database import Database
from agentsup.tasks.brief import Brief


async def _unbriefed(message: Message) -> Brief:
    del message
    return Brief()


@dataclass(frozen=True, slots=True)
class TurnServices:
    """What every turn of the daemon shares."""

    database: Database
    mailbox: Mailbox
    journal: Journal
    live: LiveHub
    clock: Clock
    calls: HostServices
    tokens: RunTokens
    served: ServedTurns = field(default_factory=ServedTurns)
    """The turns whose programs call our tools over MCP."""
    before_turn: BeforeTurn | None = None
    """Remembers, and shortens long sessions; without it neither is done."""
    brief: Callable[[Message], Awaitable[Brief]] = _unbriefed
    """What a turn on a run is told and lent beside."""
    roles: Roles | None = None
    """Says what a turn may use because of its role; without it there are no roles."""
    spending: Spending | None = None
    """Holds what turns will use, and ends those that use too much; without it nothing is bounded."""
    restarts: Restarts = field(default_factory=Restarts)
    """Whose agent begins anew after its turn."""
    breakers: Breakers = field(init=False)
    """Which providers are left alone for a while."""
    redactor: Redactor = field(default_factory=Redactor)
    """Takes secrets of the daemon out of what an engine says: a program knows its own key."""
    tracer: Tracer = UNTRACED
    """Hears of segments and of engines' runs."""
    turn_ended: Callable[[str, str, float], None] = lambda agent, outcome, seconds: None
    """Hears of each segment's end: the agent's name, ok | failed | parked | retry | cancelled,
    and how long it ran."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "breakers", Breakers(self.clock))
