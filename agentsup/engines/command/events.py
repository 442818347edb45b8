"""The events that a program of the engine ``command`` writes, and its input.

Its output is one JSON object per line, with a ``type``:

| type | fields | meaning | |---|---|---| | text | text | a piece of the answer | | thinking | text
| a thought, or a sign of life | | tool | name, args | a call of its own begins | | tool_result |
name, ok, preview | and ends | | notice | text | a line for the person, beside the answer | | usage
| input, output, usd | what was used since the last one | | file | path | send a file of the
workspace | | ask | text, options, timeout_s, who, checkpoint | end here and wait for an answer | |
done | text, state | the end; ``text`` instead of the pieces, ``state`` for the next turn | | fail |
error, permanent, retry_after_s | the end without an answer |

Other types are ignored, so that new ones do no harm in older versions.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from agentsup.engines import clean
from agentsup.engines.clean import json_object
from agentsup.engines.failures import CheckpointUnusable, OutputUnreadable
from agentsup.model.engine import EngineSpec, Segment
from agentsup.model.question import AnswerableBy

_ENGINE = "command"
_MAX_STATE_BYTES = 512 * 1024
_SPEAKERS = {"user": "User", "assistant": "Assistant", "note": "Note"}


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


@dataclass(frozen=True, slots=True)
class Suspension:
    """The saved state of a segment that asked something: its answer so far, and the program's own
    data."""

    text: str = ""
    checkpoint: Any = None

    def freeze(self) -> bytes:
        """Return it as the bytes of a checkpoint."""
        return clean.dump(_ENGINE, text=self.text, checkpoint=self.checkpoint)


def suspension_of(segment: Segment) -> Suspension | None:
    """Return what the segment before this one saved, if any. Raises ``CheckpointUnusable``."""
    if segment.resume is None or segment.resume.checkpoint is None:
        return None
    saved = clean.load(segment.resume.checkpoint, _ENGINE)
    if saved is None or not isinstance(saved.get("text"), str):
        raise CheckpointUnusable("the program's turn can't be resumed: its checkpoint is damaged")
    return Suspension(saved["text"], saved.get("checkpoint"))


def keep_state(state: Any) -> bytes | None:
    """The program's own state for the next turn; None if there is none, or too much of it."""
    if state is None:
        return None
    raw = clean.dump(_ENGINE, state=state)
    return raw if len(raw) <= _MAX_STATE_BYTES else None


def as_json(segment: Segment, spec: EngineSpec, left: Suspension | None) -> bytes:
    """Return the message with all that belongs to it, as one line."""
    state = clean.load(segment.engine_state, _ENGINE)
    envelope = {
        "v": 1,
        "agent": spec.agent,
        "model": spec.model,
        "message_id": segment.message_id,
        "session_id": segment.session_id,
        "text": segment.text,
        "prompt": segment.prompt,
        "system": segment.instructions,
        "history": [{"role": each.role, "text": each.text} for each in segment.history],
        "files": [
            {"path": part.path, "name": part.name} for part in segment.parts if part.type == "file"
        ],
        "state": state.get("state") if state else None,
        "resume": _resume(segment, left),
        "nudge": segment.nudge,
    }
    return json.dumps(envelope).encode() + b"\n"


def as_text(segment: Segment) -> bytes:
    """Plain text as a model reads it: instructions, the conversation so far, the message."""
    said = (f"{_SPEAKERS[item.role]}: {item.text}" for item in segment.history)
    blocks = [segment.instructions, *said, segment.prompt]
    if segment.resume is not None and segment.resume.answer is not None:
        blocks.append(segment.resume.answer)
    text = "\n\n".join(block for block in blocks if block)
    return text.encode("utf-8", "replace") + b"\n"


def _resume(segment: Segment, left: Suspension | None) -> dict[str, Any] | None:
    if segment.resume is None:
        return None
    checkpoint = left.checkpoint if left else None
    return {"checkpoint": checkpoint, "answer": segment.resume.answer, "crashed": left is None}
