"""``/setup``: the steps of ``agentsup setup`` for operators in the page.

What is typed there is checked, kept in files of the home and named by reference; no answer has it.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

from pydantic import Field

from agentsup.api.documents.bodies import Body
from agentsup.api.documents.document import Document, DoneDocument
from agentsup.api.http.access import Access
from agentsup.api.http.dependencies import ApiDependencies
from agentsup.api.http.route import Call, get, post
from agentsup.model.errors import NotFound
from agentsup.model.setup import BotDraft, ModelDraft, Setup

Line = Annotated[str, Field(max_length=4200)]
TelegramId = Annotated[int | None, Field(ge=1, lt=2**63)]


class WantedModelBody(Body):
    """A provider, and what the person has chosen there so far."""

    provider: Annotated[str, Field(max_length=64)]
    base_url: Line = ""
    key: Line = Field(default="", repr=False)
    model: Line = ""

    @property
    def wanted(self) -> ModelDraft:
        """The body as a value."""
        return ModelDraft(self.provider, self.base_url, self.key, self.model)


class WantedBotBody(Body):
    """The token of main's bot, and who its owner is."""

    token: Line = Field(repr=False)
    person: Line = ""
    telegram_id: TelegramId = None


class WantedProgramBody(Body):
    """A coding agent."""

    name: Annotated[str, Field(max_length=64)]


class OperatorBody(Body):
    """A person who becomes an operator; without a Telegram id they are let in later by pairing."""

    person: Line
    telegram_id: TelegramId = None


class ProgramUsed(DoneDocument):
    others: list[str] = Field(description="the agents that name another engine")


class ProviderDocument(Document):
    name: str
    title: str
    base_url: str = Field(description="empty: only the person knows it")
    needs_key: bool
    keys_at: str = Field(description="where one gets a key")
    has_key: bool = Field(description="true: the daemon has one, and none need be sent")


class ProgramDocument(Document):
    name: str
    title: str
    state: str = Field(description="how it is signed in, or that it is not")
    sign_in: str = Field(description="what to do to sign in; empty if it is")


class RestartDocument(Document):
    by: str = Field(description="systemd, container, parent or nothing")
    command: str = Field(description="makes it a service, which also survives a reboot")


class SetupDocument(Document):
    providers: list[ProviderDocument]
    programs: list[ProgramDocument] = Field(description="coding agents that are installed")
    restart_info: RestartDocument


class OfferedModelsDocument(Document):
    where: str = Field(description="the address that was asked")
    names: list[str]


class TriedModelDocument(Document):
    model: str
    input_tokens: int
    output_tokens: int
    seconds: float
    usd: float | None = Field(description="null: the price is not known")
    problem: str = Field(description="too little context is served, and the cure; empty: none")


class BotDocument(DoneDocument):
    username: str


def _setup(deps: ApiDependencies) -> Setup:
    if deps.setup is None:
        raise NotFound("this daemon is not set up from here")
    return deps.setup


_get = partial(get, access=Access.STEER, offered=_setup)
_post = partial(post, access=Access.STEER, offered=_setup)


@_get("/setup", refusals=(404,))
async def offered(call: Call) -> SetupDocument:
    """What agents can think with, and what keeps the daemon running."""
    setup = _setup(call.deps)
    return SetupDocument(
        providers=[ProviderDocument.from_value(each) for each in setup.providers(call.by)],
        programs=[ProgramDocument.from_value(each) for each in await setup.programs(call.by)],
        restart_info=RestartDocument.from_value(await setup.restart_info(call.by)),
    )


@_post("/setup/program", refusals=(404, 409))
async def use_program(call: Call, body: WantedProgramBody) -> ProgramUsed:
    """Let agents use a coding agent that name no engine of their own."""
    others = await _setup(call.deps).use_program(body.name, call.by)
    return ProgramUsed(success=True, others=list(others))


@_post("/setup/operator", refusals=(404, 409))
async def add_operator(call: Call, body: OperatorBody) -> DoneDocument:
    """Write who somebody is, as an operator."""
    await _setup(call.deps).add_operator(body.person, body.telegram_id, call.by)
    return DoneDocument(success=True)


@_post("/setup/models", refusals=(404, 502))
async def models(call: Call, body: WantedModelBody) -> OfferedModelsDocument:
    """Sign in to a provider, and list its models."""
    found = await _setup(call.deps).models(body.wanted, call.by)
    return OfferedModelsDocument.from_value(found, names=list(found.names))


@_post("/setup/test", refusals=(404, 502))
async def test(call: Call, body: WantedModelBody) -> TriedModelDocument:
    """Make one short request to a model."""
    return TriedModelDocument.from_value(await _setup(call.deps).try_model(body.wanted, call.by))


@_post("/setup/model", refusals=(404, 409, 502))
async def use_model(call: Call, body: WantedModelBody) -> DoneDocument:
    """Keep the key, and let agents think with the model that name none of their own."""
    await _setup(call.deps).use_model(body.wanted, call.by)
    return DoneDocument(success=True)


@_post("/setup/bot", refusals=(404, 409))
async def use_bot(call: Call, body: WantedBotBody) -> BotDocument:
    """Check the token of a Telegram bot, and let main use it."""
    wanted = BotDraft(body.token, body.person, body.telegram_id)
    username = await _setup(call.deps).use_bot(wanted, call.by)
    return BotDocument(success=True, username=username)
