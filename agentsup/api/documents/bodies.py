"""Request bodies and query strings, checked strictly, each error naming its field."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from agentsup.model.message import MessageState, Priority
from agentsup.model.question import QuestionState

MAX_TIMEOUT_S = 3600.0
DEFAULT_TIMEOUT_S = 300.0
MAX_WAIT_S = 600.0
MAX_PAGE = 500
MAX_NUMBER = 2**63 - 1
"""The largest row number that SQLite can store."""


def _priority(value: Any) -> Any:
    names = [p.name.lower() for p in Priority]
    if not isinstance(value, str) or value.lower() not in names:
        raise ValueError(f"must be one of {', '.join(names)}")
    return value.lower()


def _not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be empty")
    return value


def _chat_ref(value: Any) -> Any:
    """Platform ids come as numbers or text; inside they are text."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value


Text = Annotated[str, AfterValidator(_not_blank)]
ChatRef = Annotated[
    Annotated[str, Field(max_length=200)] | None,
    BeforeValidator(_chat_ref, json_schema_input_type=str | int | None),
]
PriorityName = Annotated[
    str,
    BeforeValidator(_priority),
    Field(json_schema_extra={"enum": [p.name.lower() for p in Priority]}),
]
From = Annotated[
    str | None,
    Field(alias="from", max_length=200, description="must match the token; operator: anyone"),
]
Key = Annotated[str | None, Field(min_length=1, max_length=200)]
OptionalName = Annotated[str | None, Field(max_length=200)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
WaitSeconds = Annotated[float, Field(ge=0, le=MAX_WAIT_S, allow_inf_nan=False)]
RowNumber = Annotated[int, Field(ge=1, le=MAX_NUMBER)]


class Body(BaseModel):
    """A JSON body: exact types, no unknown fields."""

    model_config = ConfigDict(  # built at the first use: most daemons never get most of the bodies
        strict=True, extra="forbid", validate_by_name=True, defer_build=True
    )


class Query(BaseModel):
    """A query string: text read as the type wanted, no unknown parameters."""

    model_config = ConfigDict(extra="forbid", validate_by_name=False, defer_build=True)


class Nothing(Body):
    """An empty object; the body may also be left out."""


class _SendBody(Body):
    to: Annotated[Text, Field(max_length=200, description="name of the agent")]
    message: Annotated[Text, Field(description="the text for the agent")]
    from_: From = None
    new_session: bool = False
    thread_id: OptionalName = None
    priority: PriorityName = "normal"
    idempotency_key: Key = None


class SendBody(_SendBody):
    """A request to an agent whose answer is waited for."""

    timeout: Positive = Field(DEFAULT_TIMEOUT_S, le=MAX_TIMEOUT_S, description="seconds to wait")


class SendAsyncBody(_SendBody):
    """A request to an agent that is queued; its result is fetched or delivered later."""

    timeout: Positive | None = Field(
        None,
        le=MAX_TIMEOUT_S,
        description="taken for symmetry with send and without effect: nothing waits here",
    )
    summary: Annotated[str | None, Field(max_length=2000)] = None
    chat_id: ChatRef = None
    topic_id: ChatRef = None
    reply_to: OptionalName = Field(None, description="agent that gets the result instead")
    silent: bool = False


class ReprioritizeBody(Body):
    """The new priority of a queued message."""

    priority: PriorityName


class ReassignBody(Body):
    """The agent that is to do it instead."""

    to: Annotated[Text, Field(max_length=200, description="name of the agent")]


class OverrideBody(Body):
    """A field of an agent and its value; null removes the override."""

    field: Annotated[Text, Field(max_length=100, description="dotted path, as in agents.json")]
    value: str | bool | int | float | None = Field(
        description="as in agents.json; null clears the override"
    )


class AddedAgentBody(Body):
    """A new agent."""

    name: Annotated[Text, Field(min_length=1, max_length=64)]
    description: Annotated[str, Field(max_length=2000, description="what it is for")] = ""


class ChatModelBody(Body):
    """A chat or topic, and the model that answers there; null lets it use the agent's again."""

    chat: Annotated[Text, Field(max_length=400, description="`telegram:12345`, with `/7` a topic")]
    model: Annotated[str, Field(max_length=200)] | None


class AnswerBody(Body):
    """A person's answer to a question."""

    answer: Text
    args: dict[str, Any] | None = Field(
        None, description="arguments for the approved call in place of its own"
    )
    digest: Annotated[str, Field(max_length=64)] = Field(
        "", description="the `digest` of the call that was shown; needed where `is_cut` is true"
    )
    confirm: bool = Field(
        False, description="with `any`: that an approval of every command of the tool is meant"
    )


class WaitQuery(Query):
    """How long a fetch of a result may wait."""

    wait: WaitSeconds = 0.0


class PageQuery(Query):
    """One page of a list, newest first."""

    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 100
    cursor: RowNumber | None = Field(None, description="`next_cursor` of the page before")


class MessagesQuery(PageQuery):
    """Which messages to list."""

    agent: str | None = None
    state: MessageState | None = None
    session: str | None = None
    thread: str | None = None
    removed: bool = Field(
        False, description="only what waits, or is dead, with agents that were removed"
    )


class FailedMessagesQuery(PageQuery):
    """Which failed messages to list."""

    agent: str | None = None


class QuarantineQuery(Query):
    """How much of what is quarantined to list."""

    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 100


class QuestionsQuery(Query):
    """Which questions to list, oldest first."""

    state: QuestionState = QuestionState.OPEN
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 100


class EventsQuery(Query):
    """Which events to stream."""

    after: Annotated[
        int | None,
        Field(ge=0, le=MAX_NUMBER, description="sequence number; `Last-Event-ID` wins over it"),
    ] = None
    agent: str | None = None
    conversation: str | None = None
    types: Annotated[str | None, Field(description="comma-separated event types")] = None


class NoQuery(Query):
    """No parameters."""


# -- the web page ----------------------------------------------------------------------------------

AgentName = Annotated[str, Field(min_length=1, max_length=200)]
ConversationName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]


class LoginBody(Body):
    """A one-time code, or the operator's token."""

    code: Annotated[str | None, Field(min_length=1, max_length=200)] = None
    token: Annotated[str | None, Field(min_length=1, max_length=200)] = None
    replace: bool = Field(
        default=False,
        description="whether somebody else's session in this browser may end for the new one",
    )

    @model_validator(mode="after")
    def _one_of_them(self) -> LoginBody:
        if (self.code is None) == (self.token is None):
            raise ValueError("give either code or token")
        return self


class LinkBody(Body):
    """The person for whom a one-time link is made; without one, the caller. `base` is the address
    at which the browser reaches the daemon, if it differs from that of this request. `qr` asks for
    a QR code."""

    person: Annotated[str | None, Field(min_length=1, max_length=200)] = None
    base: Annotated[str | None, Field(min_length=1, max_length=300)] = None
    qr: bool = False


class ConversationQuery(Query):
    """A conversation with an agent in the page."""

    agent: AgentName
    conversation: ConversationName


class ExportQuery(ConversationQuery):
    """A conversation, and the form in which it is written."""

    format: Literal["md", "json"] = "md"


class HistoryQuery(ConversationQuery):
    """A piece of a conversation, going back."""

    before: RowNumber | None = Field(None, description="events before this sequence number")
    session: OptionalName = None
    limit: Annotated[int, Field(ge=1, le=200)] = 50


class _ConversationBody(Body):
    agent: AgentName
    conversation: ConversationName


class NewSessionBody(_ConversationBody):
    """A fresh session for a conversation."""

    title: Annotated[str, Field(max_length=200)] = ""


class GrowingTextBody(Body):
    """A text of an agent that is still being written."""

    text: Annotated[str, Field(max_length=200_000)]


class SwitchSessionBody(_ConversationBody):
    """The session that a conversation goes on with."""

    session: Annotated[str, Field(min_length=1, max_length=200)]


class RenameSessionBody(SwitchSessionBody):
    """A session and its new title; an empty one shows its first words."""

    title: Annotated[str, Field(max_length=200)]


class UploadQuery(Query):
    """Where a file goes, and how its sender calls it."""

    agent: AgentName
    name: Annotated[str, Field(min_length=1, max_length=500)]


class LogQuery(Query):
    """How much of a log to show."""

    limit: Annotated[int, Field(ge=1, le=1000)] = 200


class PageStatisticsQuery(Query):
    """The span to look at."""

    hours: Annotated[int, Field(ge=1, le=24 * 90)] = 24
