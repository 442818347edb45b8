"""Time zones by their IANA names: which there are, and which is the machine's own."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from zoneinfo import ZoneInfo

from agentsup.model.errors import BadRequest

__all__ = ["machine_zone", "zone_of"]

UTC_NAME = "UTC"
_LOCALTIME = Path("/etc/localtime")
_FOLDER = "/zoneinfo/"


def zone_of(name: str) -> ZoneInfo:
    """The zone called ``name``. Raises ``BadRequest`` (field ``zone``) if there is none.

    What a machine has beside the names of the IANA (``localtime``, ``posix/…``) is no name.
    """
    if name not in _names():
        meant = _meant(name)
        told = f"did you mean {meant!r}?" if meant else "write it as in 'Europe/Zurich' or 'UTC'"
        raise BadRequest(f"there is no time zone {name!r}; {told}", field="zone")
    return ZoneInfo(name)


def machine_zone(env: Mapping[str, str] | None = None, localtime: Path = _LOCALTIME) -> str:
    """The name of the machine's zone: by ``TZ``, else by where ``/etc/localtime`` leads, else UTC.

    A zone that has rules but no name (a copied file, ``TZ=CET-1CEST``) counts as UTC: schedules
    are kept by name, because the rules behind a name are mended with each release of the zones.
    """
    told = (os.environ if env is None else env).get("TZ", "").removeprefix(":")
    # The first step names what was chosen; the last may be another name for the same rules.
    steps = (
        str(localtime.readlink()) if localtime.is_symlink() else "",
        os.path.realpath(localtime),
    )
    for name in (told, *(step.partition(_FOLDER)[2] for step in steps)):
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
