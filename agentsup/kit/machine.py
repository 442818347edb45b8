"""Which start of the machine this is."""

from pathlib import Path
from typing import Final

__all__ = ["boot_id"]

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """What differs with each start of the machine; empty where the system doesn't tell."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
