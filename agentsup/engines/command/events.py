"""The output of a program of the engine ``command``: one JSON object per line, with a ``type``.

| type | fields | meaning |
|---|---|---|
| text | text | a piece of the answer |
| thinking | text | a thought, or a sign of life |
| tool | name, args | a call of its own begins |
| tool_result | name, ok, preview | and ends |
| notice | text | a line for the person, beside the answer |
| usage | input, output, usd | what was used since the last one |
| file | path | send a file of the workspace |
| ask | text, options, timeout_s, who, checkpoint | end here and wait for an answer |
| done | text, state | the end; ``text`` instead of the pieces, ``state`` for the next turn |
| fail | error, permanent, retry_after_s | the end without an answer |

Other types are ignored, so that new ones do no harm in older versions.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from agentsup.engines.clean import json_object
from agentsup.engines.failures import OutputUnreadable
from agentsup.model.question import AnswerableBy


class _Event(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)


class TextEvent(_Event):
    type: Literal["text"]
    text: str


class Thinking(_Event):
    type: Literal["thinking"]
    text: str = ""


class ToolBegan(_Event):
    type: Literal["tool"]
    name: str
    args: dict[str, Any] = Field(default_factory=dict)


class ToolEnded(_Event):
    type: Literal["tool_result"]
    name: str
    ok: bool = True
    preview: str = ""


class Notify(_Event):
    type: Literal["notice"]
    text: str


class Used(_Event):
    type: Literal["usage"]
    input: int = Field(default=0, ge=0)
    output: int = Field(default=0, ge=0)
    usd: float | None = Field(default=None, ge=0)


class SendFile(_Event):
    type: Literal["file"]
    path: str


class AskEvent(_Event):
    type: Literal["ask"]
    text: str
    options: tuple[str, ...] = ()
    timeout_s: float | None = Field(default=None, gt=0)
    who: AnswerableBy = AnswerableBy.PEOPLE
    checkpoint: Any = None


class Finish(_Event):
    type: Literal["done"]
    text: str | None = None
    state: Any = None


class GiveUp(_Event):
    type: Literal["fail"]
    error: str
    permanent: bool = True
    retry_after_s: float | None = Field(default=None, ge=0)


Event = (
    TextEvent
    | Thinking
    | ToolBegan
    | ToolEnded
    | Notify
    | Used
    | SendFile
    | AskEvent
    | Finish
    | GiveUp
)
_EVENTS: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="type")])


class NoEvent(ValueError):
    """The line is no event at all."""


def read_event(line: bytes) -> Event | None:
    """The event in ``line``; None for an empty line and for a type that is not known.

    Raises ``NoEvent`` for a line that is something else, and ``OutputUnreadable`` naming the field
    that is wrong in an event.
    """
    if not line.strip():
        return None
    found = json_object(line)
    if found is None or not isinstance(found.get("type"), str):
        raise NoEvent
    try:
        return _EVENTS.validate_python(found)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        if first["type"] == "union_tag_invalid":
            return None
        where = ".".join(str(part) for part in first["loc"])
        raise OutputUnreadable(
            f"the program sent an event that can't be read ({where}: {first['msg']})"
        ) from None
