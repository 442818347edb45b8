"""``/file``: which file is meant."""

from __future__ import annotations

import shlex
import stat
from pathlib import Path
from typing import Final

from agentsup.cli.connect.failure import CommandFailed

COMMAND: Final = "/file"


def is_file(text: str) -> bool:
    """Whether a text is the command that sends a file."""
    return text.split(maxsplit=1)[:1] == [COMMAND]


def named_file(given: str) -> tuple[Path, str]:
    """The file and the text of ``/file PATH [TEXT]``. Further lines belong to the text.

    A path with spaces needs no quotes if the line has no text. Raises ``CommandFailed``.
    """
    line, _, below = given.strip().removeprefix(COMMAND).strip().partition("\n")
    if not line.strip():
        raise CommandFailed(f"say which: {COMMAND} PATH [TEXT]")
    whole_line = Path(line.strip()).expanduser()
    if whole_line.exists():
        return _readable(whole_line), below.strip()
    try:
        words = shlex.split(line)
    except ValueError:
        words = line.split()
    text = line.split(maxsplit=1)[1] if len(words) > 1 else ""
    if len(words) > 1 and line.lstrip()[0] in "\"'":
        text = line.lstrip()[1:].partition(line.lstrip()[0])[2].strip()
    return _readable(Path(words[0]).expanduser()), "\n".join(filter(None, (text, below.strip())))


def _readable(path: Path) -> Path:
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise CommandFailed(f"{path} can't be read: {error.strerror or error}") from None
    if not stat.S_ISREG(mode):
        raise CommandFailed(f"{path} is no file")
    return path
