"""What the commands of a chat work with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from agentsup.agents.memory.notes_file import NotesFiles
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.mailbox.bus import AgentDirectory
from agentsup.mailbox.mailbox import Mailbox
from agentsup.model.control import Control
from agentsup.store.database import Database

__all__ = ["CommandServices"]


@dataclass(frozen=True, slots=True)
class CommandServices:
    """What the commands work with."""

    control: Control
    mailbox: Mailbox
    database: Database
    directory: AgentDirectory
    clock: Clock
    entropy: Entropy
    memory_of: Callable[[str], Path]
    """The MEMORY.md of an agent, by its name."""
    notes: NotesFiles = field(default_factory=NotesFiles)
    """Reads it."""
