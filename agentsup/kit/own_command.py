"""The commands of agentsup in texts for people, so that they work when they are pasted.

A text says ``agentsup setup`` between backticks. Whoever reads it for a home that is not the default
must type ``agentsup --home X setup``, else the command sets up another home.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_COMMAND: Final = re.compile(r"`agentsup (?=[a-z])")
_named: Final[list[Path]] = []
"""The homes that are named, the current one last; one process works for one home."""


@contextmanager
def naming(home: Path, default: Path) -> Iterator[None]:
    """Within the block ``with_home`` names ``home``, unless it is ``default``: the home that a
    command without ``--home`` means."""
    before = _named[:]
    _named[:] = [] if home == default else [home]
    try:
        yield
    finally:
        _named[:] = before


def with_home(text: str) -> str:
    """``text`` for a person, with ``--home`` in each command between backticks that names none."""
    if not _named or "`agentsup " not in text:
        return text
    named = f"`agentsup --home {shlex.quote(str(_named[-1]))} "
    return _COMMAND.sub(lambda _: named, text)
