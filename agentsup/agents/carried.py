"""What a suspended turn keeps beside the engine's checkpoint: counted calls and files to send."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from agentsup.model.engine import Resume
from agentsup.model.message import Part


@dataclass(frozen=True, slots=True)
class Carried:
    """What a suspended segment hands to the one that goes on."""

    counts: dict[str, int] = field(default_factory=dict)
    files: tuple[Part, ...] = ()
    checkpoint: bytes | None = None
    held: str = ""
    """The call that waits for leave."""
    shown: int = 0
    """Characters of results that the turn has been shown."""

    def pack(self) -> bytes:
        """As a checkpoint of ours: one JSON line, then the engine's own bytes."""
        head = {
            "calls": self.counts,
            "files": [part.to_json() for part in self.files],
            "held": self.held,
            "shown": self.shown,
        }
        return json.dumps(head).encode() + b"\n" + (self.checkpoint or b"")

    @classmethod
    def of(cls, resume: Resume | None) -> Carried:
        """What the earlier segment left; nothing after a crash before any suspension."""
        if resume is None or not resume.checkpoint:
            return cls()
        head, _, checkpoint = resume.checkpoint.partition(b"\n")
        kept = json.loads(head)
        files = tuple(Part.from_json(part) for part in kept["files"])
        return cls(
            kept["calls"],
            files,
            checkpoint,
            held=kept.get("held", ""),
            shown=kept.get("shown", 0),
        )
