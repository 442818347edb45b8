"""The services that chat commands use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from agentsup.agents.memory import NotesFiles
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.mailbox import Mailbox
from agentsup.mailbox.mail import AgentDirectory
from agentsup.model.control import Control
from agentsup.store import Database


@dataclass(frozen=True, slots=True)
class CommandServices:
    """The services that chat commands use."""

    control: Control
    mailbox: Mailbox
    database: Database
    directory: AgentDirectory
    clock: Clock
    entropy: Entropy
    memory_of: Callable[[str], Path]
    """The path of an agent's MEMORY.md, by the agent's name."""
    notes: NotesFiles = field(default_factory=NotesFiles)
    """Reads that file."""
