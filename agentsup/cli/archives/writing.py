"""One way in which archives are written: beside their name, read back, flushed, renamed."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from agentsup import __version__
from agentsup.kit.archive.contents import ArchiveRefused, Contents
from agentsup.kit.archive.packing import Packer, packed
from agentsup.kit.archive.unpacking import check
from agentsup.store import whole_file

_BIGGEST: Final = 2**50


def write_archive(
    target: Path, kind: str, at_ms: int, fill: Callable[[Packer], Mapping[str, Any]]
) -> Contents:
    """Write what ``fill`` adds into the new file ``target``, with the facts that it returns.

    Raises ``FileExistsError``, ``OSError``, ``ArchiveRefused``, and what ``fill`` raises; then there
    is no such file.
    """
    if target.exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    with whole_file(target) as partial:
        with packed(partial) as packer:
            facts = fill(packer)
            written = packer.finish(
                {**facts, "kind": kind, "agentsup": __version__, "made_at": at_ms}
            )
        if check(partial, limit=_BIGGEST).entries != written.entries:
            raise ArchiveRefused("what was read back is not what was written")
    return written
