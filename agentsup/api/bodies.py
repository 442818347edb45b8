"""What clients may send: bodies and query strings, checked strictly, each error naming its field."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from agentsup.model.message import Priority, State
from agentsup.model.question import QuestionState

MAX_TIMEOUT_S = 3600.0
DEFAULT_TIMEOUT_S = 300.0
MAX_WAIT_S = 600.0
MAX_PAGE = 500
MAX_NUMBER = 2**63 - 1
"""The largest number of a row that there can be."""


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
    str | None,
    BeforeValidator(_chat_ref, json_schema_input_type=str | int | None),
    Field(max_length=200),
]
PriorityName = Annotated[
    str,
    BeforeValidator(_priority),
    Field(json_schema_extra={"enum": [p.name.lower() for p in Priority]}),
]


class Body(BaseModel):
    """A JSON body: exact types, no unknown fields."""

    model_config = ConfigDict(strict=True, extra="forbid", validate_by_name=True)


class Query(BaseModel):
    """A query string: text read as the type wanted, no unknown parameters."""

    model_config = ConfigDict(extra="forbid", validate_by_name=False)


class Nothing(Body):
    """An empty object; the body may also be left out."""


class SendBody(Body):
    """A request to an agent whose answer is waited for."""

    to: Annotated[Text, Field(max_length=200, description="name of the agent")]
    message: Annotated[Text, Field(description="the text for the agent")]
    from_: Annotated[
        str | None,
        Field(alias="from", max_length=200, description="must match the token; operator: anyone"),
    ] = None
    new_session: bool = False
    thread_id: Annotated[str | None, Field(max_length=200)] = None
    timeout: Annotated[
        float,
        Field(gt=0, le=MAX_TIMEOUT_S, allow_inf_nan=False, description="seconds to wait"),
    ] = DEFAULT_TIMEOUT_S
    priority: PriorityName = "normal"
    idempotency_key: Annotated[str | None, Field(min_length=1, max_length=200)] = None


class SendAsyncBody(Body):
    """A request to an agent that is queued; its result is fetched or delivered later."""

    to: Annotated[Text, Field(max_length=200, description="name of the agent")]
    message: Annotated[Text, Field(description="the text for the agent")]
    from_: Annotated[
        str | None,
        Field(alias="from", max_length=200, description="must match the token; operator: anyone"),
    ] = None
    new_session: bool = False
    thread_id: Annotated[str | None, Field(max_length=200)] = None
    timeout: Annotated[
        float | None,
        Field(
            gt=0,
            le=MAX_TIMEOUT_S,
            allow_inf_nan=False,
            description="taken for symmetry with send and without effect: nothing waits here",
        ),
    ] = None
    priority: PriorityName = "normal"
    idempotency_key: Annotated[str | None, Field(min_length=1, max_length=200)] = None
    summary: Annotated[str | None, Field(max_length=2000)] = None
    chat_id: ChatRef = None
    topic_id: ChatRef = None
    reply_to: Annotated[
        str | None, Field(max_length=200, description="agent that gets the result instead")
    ] = None
    silent: bool = False


class ReprioritizeBody(Body):
    """The new priority of a queued message."""

    priority: PriorityName


class AnswerBody(Body):
    """A person's answer to a question."""

    answer: Text


class WaitQuery(Query):
    """How long a fetch of a result may wait."""

    wait: Annotated[float, Field(ge=0, le=MAX_WAIT_S, allow_inf_nan=False)] = 0.0


class PageQuery(Query):
    """One page of a list, newest first."""

    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 100
    cursor: Annotated[
        int | None, Field(ge=1, le=MAX_NUMBER, description="`next_cursor` of the page before")
    ] = None


class MessagesQuery(PageQuery):
    """Which messages to list."""

    agent: str | None = None
    state: State | None = None
    session: str | None = None
    thread: str | None = None


class DeadQuery(PageQuery):
    """Which dead messages to list."""

    agent: str | None = None


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
