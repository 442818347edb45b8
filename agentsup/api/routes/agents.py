"""``/agents`` and ``/stop_all``: operators see and control the running agents."""

from __future__ import annotations

import asyncio

from aiohttp import web
from pydantic import Field

from agentsup.api.documents import bodies
from agentsup.api.documents.agents import (
    Agent,
    AgentChanged,
    AgentList,
    BotOfferDocument,
    ChatModelChosen,
    ChatModelDocument,
    ChatModelList,
    ExplainedDocument,
    Overridable,
    OverridableList,
    Overridden,
    StopReportDocument,
)
from agentsup.api.documents.document import Document
from agentsup.api.http.access import Access
from agentsup.api.http.route import Call, get, post, reply
from agentsup.kit import qr
from agentsup.mailbox.delivery import chats_of
from agentsup.mailbox.messages import keys
from agentsup.model.errors import NotFound


@get("/agents", access=Access.LOOK)
async def listing(call: Call) -> AgentList:
    """Every agent with its state."""
    views = await call.deps.control.agents()
    return AgentList(agents=[Agent.of(view.seen_by(call.by)) for view in views])


@post("/agents", access=Access.STEER, refusals=(404, 409))
async def add(call: Call, body: bodies.AddedAgentBody) -> AgentChanged:
    """Add an agent to agents.json and start it."""
    if call.deps.bots is None:
        raise NotFound("no agents are added here")
    await call.deps.bots.add(body.name, body.description.strip(), call.by)
    return AgentChanged.of(await call.deps.control.agent(body.name), success=True)


@get("/agents/{name}", access=Access.LOOK, refusals=(404, 410))
async def show(call: Call) -> Agent:
    """One agent."""
    view = await call.deps.control.agent(call.named("name"))
    return Agent.of(view.seen_by(call.by))


@get("/agents/{name}/explain", access=Access.STEER, refusals=(404, 410))
async def explain(call: Call) -> ExplainedDocument:
    """Every value of an agent with where it came from."""
    name = call.named("name")
    values = await call.deps.control.explain(name)
    return ExplainedDocument(agent=name, values=values)


@get("/agents/{name}/overrides", access=Access.STEER, refusals=(404, 410))
async def overrides(call: Call) -> OverridableList:
    """The fields that may be set without an edit of a file."""
    found = await call.deps.control.overridable(call.named("name"))
    name = found[0].agent if found else call.named("name")
    fields = [Overridable.from_value(each) for each in found]
    return OverridableList(agent=name, fields=fields)


@post("/agents/{name}/overrides", access=Access.STEER, refusals=(404, 409, 410))
async def override(call: Call, body: bodies.OverrideBody) -> Overridden:
    """Set a field of an agent; null removes the override, and the value of the files applies."""
    found = await call.deps.control.set_override(
        call.named("name"), body.field, body.value, call.by
    )
    return Overridden.from_value(found, success=True)


@get("/agents/{name}/chat_models", access=Access.STEER, refusals=(404, 410))
async def chat_models(call: Call) -> ChatModelList:
    """The models that were chosen for single chats and topics."""
    found = await call.deps.control.chat_models.of(call.named("name"))
    chats = [ChatModelDocument.from_value(each) for each in found]
    return ChatModelList(chats=chats)


@post("/agents/{name}/chat_models", access=Access.STEER, refusals=(404, 409, 410))
async def choose_chat_model(call: Call, body: bodies.ChatModelBody) -> ChatModelChosen:
    """Choose a model for a chat or topic; null lets it use the agent's again."""
    name, control = call.named("name"), call.deps.control
    if body.model is not None:
        entry = call.deps.directory.lookup(name)
        known = await call.deps.database.read(chats_of, entry.agent_id, name="api.chat_models")
        keys.check_known_chat(entry.name, body.chat, known)
    here = await control.chat_models.set(name, body.chat, body.model, call.by)
    return ChatModelChosen(
        success=True, holds=ChatModelDocument.from_value(here) if here is not None else None
    )


@get("/diff", "application/json", access=Access.STEER)
async def diff(call: Call) -> web.Response:
    """Show the changes of an edit that are not applied yet."""
    return reply(await call.deps.control.diff())


@post("/stop_all", access=Access.STEER)
async def stop_all(call: Call) -> StopReportDocument:
    """Stop everything that runs, waits or is queued; the agents stay up."""
    return StopReportDocument.of(await call.deps.control.stop("all", call.by))


@post("/agents/{name}/start", access=Access.STEER, takes_work=True, refusals=(404, 409, 410))
async def start(call: Call) -> AgentChanged:
    """Start an agent; a failed one is revived."""
    view = await call.deps.control.start_agent(call.named("name"), call.by)
    return AgentChanged.of(view, success=True)


@post("/agents/{name}/bot", access=Access.STEER, refusals=(404, 409, 502, 503))
async def bot(call: Call) -> BotOfferDocument:
    """Offer to create the agent's bot, by a link that any operator may open in Telegram."""
    if call.deps.bots is None:
        raise NotFound("no bots are created here")
    offer = await call.deps.bots.offer(call.named("name"), call.by)
    drawn = await asyncio.to_thread(qr.svg, offer.link)
    return BotOfferDocument.from_value(offer, success=True, link=offer.link, qr=drawn)


@post("/agents/{name}/stop", access=Access.STEER, refusals=(404, 409, 410))
async def stop(call: Call) -> AgentChanged:
    """Stop an agent until it is started again."""
    view = await call.deps.control.stop_agent(call.named("name"), call.by)
    return AgentChanged.of(view, success=True)


@post("/agents/{name}/restart", access=Access.STEER, takes_work=True, refusals=(404, 409, 410))
async def restart(call: Call) -> AgentChanged:
    """Drain an agent and build it anew."""
    view = await call.deps.control.restart_agent(call.named("name"), call.by)
    return AgentChanged.of(view, success=True)


class McpServerDocument(Document):
    name: str
    type: str = Field(description="stdio or http")
    target: str = Field(description="its program or address, without arguments and secrets")
    state: str = Field(
        description="starting, running, backoff, not_signed_in, stopping, stopped, failed or disabled"
    )
    since: int | None = Field(description="milliseconds since 1970")
    tools: list[str] = Field(description="mcp:SERVER/TOOL")
    error: str = Field(description="why it does not run")
    next_retry_at: int | None
    restarts: int
    notes: list[str] = Field(description="tools that were left out, and the like")


class McpServerList(Document):
    agent: str
    servers: list[McpServerDocument]


@get("/agents/{name}/mcp", access=Access.OPERATOR, refusals=(404, 410))
async def servers(call: Call) -> McpServerList:
    """The tool servers of an agent, and how they are."""
    return McpServerList(**call.deps.mcp(call.named("name")))
