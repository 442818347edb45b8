"""``/pairings``: strangers who ask to be let in, for operators here and in the page."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

from pydantic import Field

from agentsup.api.documents.bodies import Body
from agentsup.api.documents.document import Document, DoneDocument
from agentsup.api.http.access import Access
from agentsup.api.http.dependencies import ApiDependencies
from agentsup.api.http.route import Call, get, post
from agentsup.model.errors import NotFound
from agentsup.model.pairing import Pairing, PairingRequest, shown_code
from agentsup.model.principal import PersonRole

RoleName = Literal["viewer", "user", "operator", "manager"]
Code = Annotated[str, Field(min_length=1, max_length=40)]


class RefuseBody(Body):
    """The code of the request to refuse."""

    code: Code


class LetInBody(RefuseBody):
    """The code of the request to accept. The default role is user, the default name the shown one.
    With the name of a person of [people], the platform's id is added to that person."""

    role: RoleName | None = None
    name: Annotated[str | None, Field(min_length=1, max_length=64)] = None


class PairingDocument(Document):
    code: str = Field(description="what the stranger was told")
    agent: str
    agent_id: str
    channel: str
    user_id: str = Field(description="the platform's id of the stranger")
    name: str = Field(description="what the platform shows; the stranger chose it")
    asked_at: int
    expires_at: int


class PairingList(Document):
    pairings: list[PairingDocument] = Field(description="oldest first")


class LetInDocument(DoneDocument):
    pairing: PairingDocument
    person: str = Field(description="the name in [people]")
    role: str
    is_everywhere: bool = Field(description="false: the person may talk to that agent alone")


class RefusedDocument(DoneDocument):
    pairing: PairingDocument


def _document(agent: str, request: PairingRequest) -> PairingDocument:
    stranger = request.stranger
    return PairingDocument.from_value(
        request,
        code=shown_code(request.code),
        agent=agent,
        channel=stranger.channel,
        user_id=stranger.user_id,
        name=stranger.name,
    )


def _pairing(deps: ApiDependencies) -> Pairing:
    if deps.pairing is None:
        raise NotFound("this daemon lets nobody in")
    return deps.pairing


_get = partial(get, access=Access.STEER, offered=_pairing)
_post = partial(post, access=Access.STEER, offered=_pairing)


@_get("/pairings", refusals=(404,))
async def listing(call: Call) -> PairingList:
    """Strangers who ask to be let in now."""
    found = await _pairing(call.deps).requests()
    return PairingList(pairings=[_document(*each) for each in found])


@_post("/pairings/let_in", refusals=(404, 409))
async def let_in(call: Call, body: LetInBody) -> LetInDocument:
    """Let a stranger in, by the code."""
    role = None if body.role is None else PersonRole[body.role.upper()]
    done = await _pairing(call.deps).let_in(body.code, call.by, role=role, name=body.name or "")
    return LetInDocument(
        success=True,
        pairing=_document(done.agent, done.request),
        person=done.person,
        role=done.role.name.lower(),
        is_everywhere=done.is_everywhere,
    )


@_post("/pairings/refuse", refusals=(404,))
async def refuse(call: Call, body: RefuseBody) -> RefusedDocument:
    """Refuse a stranger, by the code."""
    refused = await _pairing(call.deps).refuse(body.code, call.by)
    name = call.deps.directory.by_id(refused.agent_id)
    shown = _document(name.name if name is not None else refused.agent_id, refused)
    return RefusedDocument(success=True, pairing=shown)
