"""Time zones by their IANA names: which there are, and which is the machine's own."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from zoneinfo import ZoneInfo

from agentsup.model.errors import BadRequest

UTC_NAME = "UTC"
_LOCALTIME = Path("/etc/localtime")
_FOLDER = "/zoneinfo/"


def zone_of(name: str) -> ZoneInfo:
    """The zone called ``name``. Raises ``BadRequest`` (field ``zone``) if there is none.

    Only IANA names are accepted, not other files of a machine's zones (``localtime``, ``posix/…``).
    """
    if name not in _names():
        meant = _meant(name)
        hint = f"did you mean {meant!r}?" if meant else "write it as in 'Europe/Zurich' or 'UTC'"
        raise BadRequest(f"there is no time zone {name!r}; {hint}", field="zone")
    return ZoneInfo(name)


def machine_zone(env: Mapping[str, str] | None = None, localtime: Path = _LOCALTIME) -> str:
    """The name of the machine's zone: from ``TZ``, else from ``/etc/localtime``, else UTC.

    A zone that has rules but no name (a copied file, ``TZ=CET-1CEST``) counts as UTC. Schedules
    store the name, because the rules behind a name change with each release of the zone data.
    """
    hint = (os.environ if env is None else env).get("TZ", "").removeprefix(":")
    if hint in _names():
        return hint
    try:
        found = os.lstat(localtime)
    except OSError:
        return UTC_NAME
    return _zone_behind(localtime, found.st_ino, found.st_mtime_ns)


@lru_cache(maxsize=8)
def _zone_behind(localtime: Path, _inode: int, _changed_ns: int) -> str:
    """The zone that a file names by where it leads. Each turn asks, so it is kept until it changes."""
    # The link's first target has the chosen name; its last may be another name for the same rules.
    first = str(localtime.readlink()) if localtime.is_symlink() else ""
    for step in (first, os.path.realpath(localtime)):
        name = step.partition(_FOLDER)[2]
        if name in _names():
            return name
    return UTC_NAME


@cache
def _names() -> frozenset[str]:
    listed = resources.files("tzdata").joinpath("zones").read_text(encoding="ascii")
    return frozenset(listed.split())


def _meant(name: str) -> str:
    lowered = {known.lower(): known for known in sorted(_names())}
    wanted = name.strip().lower().replace(" ", "_")
    cities = {known.rpartition("/")[2]: real for known, real in lowered.items()}
    if wanted in lowered:
        return lowered[wanted]
    if wanted in cities:
        return cities[wanted]
    close = difflib.get_close_matches(wanted, lowered, n=1, cutoff=0.75)
    return lowered[close[0]] if close else ""
