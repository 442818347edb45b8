"""What the engine ``command`` gives to its program on standard input, and what it keeps."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from agentsup.engines.failures import CheckpointUnusable
from agentsup.model.engine import EngineSpec, HistoryItem, Segment

_ENGINE = "command"
_MAX_STATE_BYTES = 512 * 1024
_SPEAKERS = {"user": "User", "assistant": "Assistant", "note": "Note"}


@dataclass(frozen=True, slots=True)
class Suspension:
    """What a segment that asked something has left: its answer so far, and the program's own."""

    text: str = ""
    checkpoint: Any = None

    def freeze(self) -> bytes:
        """As the bytes of a checkpoint."""
        kept = {"v": 1, "engine": _ENGINE, "text": self.text, "checkpoint": self.checkpoint}
        return json.dumps(kept).encode()


def suspension_of(segment: Segment) -> Suspension | None:
    """What the segment before this one has left. Raises ``CheckpointUnusable``."""
    if segment.resume is None or segment.resume.checkpoint is None:
        return None
    kept = _read(segment.resume.checkpoint)
    if kept is None or not isinstance(kept.get("text"), str):
        raise CheckpointUnusable("the program's turn can't be resumed: its checkpoint is damaged")
    return Suspension(kept["text"], kept.get("checkpoint"))


def keep_state(state: Any) -> bytes | None:
    """The program's own state for the next turn; None if there is none, or too much of it."""
    if state is None:
        return None
    raw = json.dumps({"v": 1, "engine": _ENGINE, "state": state}).encode()
    return raw if len(raw) <= _MAX_STATE_BYTES else None


def as_json(segment: Segment, spec: EngineSpec, left: Suspension | None) -> bytes:
    """One line: the message with all that belongs to it."""
    state = _read(segment.engine_state or b"")
    envelope = {
        "v": 1,
        "agent": spec.agent,
        "model": spec.model,
        "message_id": segment.message_id,
        "session_id": segment.session_id,
        "text": segment.text,
        "prompt": segment.prompt,
        "system": segment.system,
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
    blocks = [segment.system, *map(_said, segment.history), segment.prompt]
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


def _read(raw: bytes) -> dict[str, Any] | None:
    try:
        kept = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if isinstance(kept, dict) and kept.get("engine") == _ENGINE and kept.get("v") == 1:
        return kept
    return None
