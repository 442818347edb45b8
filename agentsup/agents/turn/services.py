"""The services that turns use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from agentsup.agents.budget.spending import BudgetReservations, StoredBudget
from agentsup.agents.media import MediaReader
from agentsup.agents.memory.preparation import TurnPreparer, TurnStart
from agentsup.agents.persona.context import RunTokens
from agentsup.agents.recovery.breakers import Breakers
from agentsup.agents.recovery.engine_problems import EngineProblems
from agentsup.agents.roles.limits import Roles
from agentsup.agents.tools.restart_requests import Restarts
from agentsup.agents.turn.endpoint import TurnEndpoints
from agentsup.agents.turn.engine_host import HostServices
from agentsup.kit.clock import Clock
from agentsup.mailbox import Mailbox
from agentsup.mailbox.work import Journal
from agentsup.observe import LiveHub, Redactor
from agentsup.observe.traces import OtelTracer
from agentsup.store import Database
from agentsup.tasks import Briefing, StoredRun


@dataclass(frozen=True, slots=True)
class StoredTurn:
    """The result of a turn's one read. None: it was not read."""

    memory: TurnStart | None = None
    run: StoredRun | None = None
    budget: StoredBudget | None = None


@dataclass(frozen=True, slots=True)
class TurnServices:
    """The services that all turns of the daemon share."""

    database: Database
    mailbox: Mailbox
    journal: Journal
    live: LiveHub
    clock: Clock
    calls: HostServices
    tokens: RunTokens
    before_turn: TurnPreparer
    """Recalls memories and shortens long sessions."""
    brief: Briefing
    """Makes the extra instructions, environment and folders of a run's turn."""
    roles: Roles
    """Finds the limits of a turn's role."""
    spending: BudgetReservations
    """Reserves what turns will use and ends turns that use too much."""
    zone_of: Callable[[str, str], str] = lambda agent_id, person: "UTC"
    """The name of the time zone of a person, as an agent is to see it."""
    media: MediaReader = field(default_factory=MediaReader)
    """Reads the files that come with messages."""
    served: TurnEndpoints = field(default_factory=TurnEndpoints)
    """The turns whose programs call our tools over MCP."""
    restarts: Restarts = field(default_factory=Restarts)
    """Turns after which the agent's stack is rebuilt."""
    breakers: Breakers = field(init=False)
    """The circuit breakers of all providers."""
    problems: EngineProblems = field(default_factory=EngineProblems)
    """Why models could not answer last."""
    redactor: Redactor = field(default_factory=Redactor)
    """Masks the daemon's secrets in the output of engines: a program knows its own key."""
    tracer: OtelTracer = field(default_factory=OtelTracer)
    """Makes spans of segments, engine runs and requests to models."""
    turn_ended: Callable[[str, str, float], None] = lambda agent, outcome, seconds: None
    """Called when the work on a lease ends, with the agent's name, ok | failed | parked | retry |
    cancelled, and the duration in seconds."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "breakers", Breakers(self.clock))
