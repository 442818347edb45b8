"""The settings of deliveries, apart from what is imported to deliver."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import tzinfo
from pathlib import Path

from agentsup.kit.pool import BoundedPool


@dataclass(frozen=True, slots=True)
class DeliverySettings:
    """The settings of deliveries, which may change while the bot runs."""

    workspace: Path
    """Files are sent only from here."""
    files: BoundedPool = field(
        default_factory=lambda: BoundedPool("files"), compare=False, kw_only=True
    )
    """The threads that read the workspace."""
    long_as_file_pieces: int = 0
    """An answer of more pieces is sent as a file with a summary; 0: never."""
    timezone: tzinfo | None = None
