"""``GET /cost``: what was used, and what remains of the budgets."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from agentsup.api.documents.bodies import Query
from agentsup.api.documents.document import Document
from agentsup.api.http.access import Access, is_agent
from agentsup.api.http.route import Call, get
from agentsup.mailbox.mail import name_in
from agentsup.model.errors import Forbidden


class CostQuery(Query):
    """Of one agent, or of all."""

    agent: Annotated[str | None, Field(max_length=64)] = None


class SumsDocument(Document):
    since: int
    until: int | None
    input_tokens: int
    output_tokens: int
    usd: float | None = Field(description="US dollars of what has a price; null: nothing has one")
    unpriced: int = Field(description="turns without a known price; they count in tokens alone")
    estimated_tokens: int = Field(
        description="of the tokens, those that no engine reported: estimated by the length of texts"
    )
    cache_read_tokens: int = Field(
        description="of the input tokens, those that the provider had in its cache"
    )
    cache_write_tokens: int = Field(
        description="of the input tokens, those that the provider put into its cache"
    )


class BudgetDocument(Document):
    scope: str = Field(description="agent_day, agent_month, daemon_day or daemon_month")
    unit: str = Field(description="usd or tokens")
    limit: float
    used: float
    held: float = Field(description="reserved for turns that run now")
    state: str = Field(description="ok, warned (from 80 %) or exhausted")
    since: int
    free_at: int | None = Field(description="when its next period begins")


class SpentDocument(Document):
    day: SumsDocument
    month: SumsDocument
    total: SumsDocument
    budgets: list[BudgetDocument]


class AgentCostDocument(SpentDocument):
    agent: str
    agent_id: str


class CostDocument(Document):
    at: int
    agents: list[AgentCostDocument]
    all: SpentDocument | None = Field(default=None, description="left out for a single agent")


@get("/cost", access=Access.ANY, refusals=(404, 410))
async def cost(call: Call, query: CostQuery) -> CostDocument:
    """Show the usage of agents, and what is left of their budgets.

    The operator sees every agent, another token its own agent.
    """
    name, who = query.agent, call.who
    if is_agent(who) or not who.principal.is_operator:
        own = name_in(call.deps.directory, who.agent_id)
        if name is not None and name.casefold() != own.casefold():
            raise Forbidden("an agent sees what it has used itself, not what others have")
        name = own
    return CostDocument(**await call.deps.cost.document(name))
