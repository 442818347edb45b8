"""The state of a suspended turn beside the engine's checkpoint: call counts and files to send."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from agentsup.model.engine import Resume
from agentsup.model.message import Part


@dataclass(frozen=True, slots=True)
class SuspendedTurn:
    """The saved state of a suspended segment, for the segment that continues the turn."""

    counts: dict[str, int] = field(default_factory=dict)
    files: tuple[Part, ...] = ()
    checkpoint: bytes | None = None
    waiting_call: str = ""
    """The call that waits for an approval."""
    shown: int = 0
    """Characters of tool results that the model has seen in this turn."""

    def pack(self) -> bytes:
        """The state as bytes: one JSON line, then the engine's checkpoint."""
        head = {
            "calls": self.counts,
            "files": [part.to_json() for part in self.files],
            "held": self.waiting_call,
            "shown": self.shown,
        }
        return json.dumps(head).encode() + b"\n" + (self.checkpoint or b"")

    @classmethod
    def of(cls, resume: Resume | None) -> SuspendedTurn:
        """The state that the earlier segment saved; empty after a crash before any suspension."""
        if resume is None or not resume.checkpoint:
            return cls()
        head, _, checkpoint = resume.checkpoint.partition(b"\n")
        saved = json.loads(head)
        files = tuple(Part.from_json(part) for part in saved["files"])
        return cls(
            saved["calls"],
            files,
            checkpoint,
            waiting_call=saved.get("held", ""),
            shown=saved.get("shown", 0),
        )
