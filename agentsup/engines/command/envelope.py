"""The standard input of a program of the engine ``command``, and its state between turns."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from agentsup.engines import saved_state
from agentsup.engines.failures import CheckpointUnusable
from agentsup.model.engine import EngineSpec, HistoryItem, Segment

_ENGINE = "command"
_MAX_STATE_BYTES = 512 * 1024
_SPEAKERS = {"user": "User", "assistant": "Assistant", "note": "Note"}


@dataclass(frozen=True, slots=True)
class Suspension:
    """The saved state of a segment that asked something: its answer so far, and the program's own
    data."""

    text: str = ""
    checkpoint: Any = None

    def freeze(self) -> bytes:
        """Return it as the bytes of a checkpoint."""
        return saved_state.dump(_ENGINE, text=self.text, checkpoint=self.checkpoint)


def suspension_of(segment: Segment) -> Suspension | None:
    """Return what the segment before this one saved, if any. Raises ``CheckpointUnusable``."""
    if segment.resume is None or segment.resume.checkpoint is None:
        return None
    saved = saved_state.load(segment.resume.checkpoint, _ENGINE)
    if saved is None or not isinstance(saved.get("text"), str):
        raise CheckpointUnusable("the program's turn can't be resumed: its checkpoint is damaged")
    return Suspension(saved["text"], saved.get("checkpoint"))


def keep_state(state: Any) -> bytes | None:
    """The program's own state for the next turn; None if there is none, or too much of it."""
    if state is None:
        return None
    raw = saved_state.dump(_ENGINE, state=state)
    return raw if len(raw) <= _MAX_STATE_BYTES else None


def as_json(segment: Segment, spec: EngineSpec, left: Suspension | None) -> bytes:
    """Return the message with all that belongs to it, as one line."""
    state = saved_state.load(segment.engine_state, _ENGINE)
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
    blocks = [segment.instructions, *map(_said, segment.history), segment.prompt]
    if segment.resume is not None and segment.resume.answer is not None:
        blocks.append(segment.resume.answer)
    text = "\n\n".join(block for block in blocks if block)
    return text.encode("utf-8", "replace") + b"\n"


def _said(item: HistoryItem) -> str:
    return f"{_SPEAKERS[item.role]}: {item.text}"


def _resume(segment: Segment, left: Suspension | None) -> dict[str, Any] | None:
    if segment.resume is None:
        return None
    checkpoint = left.checkpoint if left else None
    return {"checkpoint": checkpoint, "answer": segment.resume.answer, "crashed": left is None}
