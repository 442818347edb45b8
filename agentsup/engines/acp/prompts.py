"""The prompts for an agent, and what is saved of its session between turns. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from agentsup.engines import clean
from agentsup.model.engine import HistoryItem, Segment

_WORDS_CHARS = 5000
_TRANSCRIPT_CHARS = 48_000


@dataclass(frozen=True, slots=True)
class SavedSession:
    """The saved state of an agent's session between turns."""

    session_id: str
    system: str = ""
    """A digest of the system instructions that the session was given."""
    usd: float = 0.0

    def dump(self, engine: str) -> bytes:
        """Return it as the opaque state of a session."""
        return clean.dump(engine, id=self.session_id, system=self.system, usd=self.usd)


def read_state(state: bytes | None, engine: str) -> SavedSession | None:
    """Return the saved session, if it is of this engine and readable."""
    body = clean.load(state, engine)
    session_id = body.get("id") if body is not None else None
    if body is None or not isinstance(session_id, str):
        return None
    system, usd = body.get("system"), body.get("usd")
    return SavedSession(
        session_id,
        system if isinstance(system, str) else "",
        usd if isinstance(usd, float) else 0.0,
    )


def digest(text: str) -> str:
    """Return a short digest of system instructions."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def prompt_of(segment: Segment, saved: SavedSession | None) -> str:
    """Return the prompt for the agent. It has the system instructions if the agent does not know
    them, our transcript if it has no session of its own (``saved`` None), and the message."""
    parts: list[str] = []
    if segment.system and (saved is None or saved.system != digest(segment.system)):
        parts.append(f"<instructions>\n{segment.system}\n</instructions>")
    if saved is None and segment.history:
        parts.append(
            f"<conversation_so_far>\n{_transcript(segment.history)}\n</conversation_so_far>"
        )
    if segment.resume is not None:
        parts.append(
            "<note>Work on this message was begun and broken off. Look what is done already "
            "before you do anything again.</note>"
        )
    return "\n\n".join(part for part in (*parts, segment.prompt, segment.recalled) if part)


def denial_prompt(words: Sequence[str]) -> str:
    """Return a further prompt of the same turn, with what people said when they denied calls."""
    said = "\n".join(f"- {each[:_WORDS_CHARS]}" for each in words)
    return (
        "<note>Calls of yours were denied by a person, who said with it:\n"
        f"{said}\nGo on by that, without asking for the same call again, and answer.</note>"
    )


def _transcript(history: Sequence[HistoryItem]) -> str:
    """Return the newest entries that fit, oldest first."""
    lines: list[str] = []
    left = _TRANSCRIPT_CHARS
    for item in reversed(history):
        line = f"{item.role}: {item.text}"
        if len(line) > left:
            if not lines:
                lines.append(line[:left])
            break
        left -= len(line)
        lines.append(line)
    return "\n".join(reversed(lines))
