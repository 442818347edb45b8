"""The contents of an archive, as its manifest lists them. Pure: nothing here touches a file.

An archive is a compressed tar file. Its last member is the manifest, with size, mode and digest of
each other member. Only plain files, folders and links that stay inside are possible.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from agentsup.kit.planted import PathEscapes, names_of

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
"""The last member of an archive."""
FILES: Final = "files/"
"""The prefix of the names of all other members."""
FILE: Final = "file"
FOLDER: Final = "folder"
LINK: Final = "link"
MAX_ENTRIES: Final = 500_000
MAX_DEPTH: Final = 100
_MAX_TARGET: Final = 4096
_DIGEST: Final = 64


class ArchiveRefused(Exception):
    """The file is no whole archive of ours, or one that must not be unpacked; the text says why."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One member. ``path`` is relative to the folder that was packed."""

    path: str
    kind: str
    mode: int
    changed_ns: int = 0
    size: int = 0
    digest: str = ""
    """Of a file: SHA-256 of its content."""
    target: str = ""
    """Of a link: where it leads, relative to its folder."""


@dataclass(frozen=True, slots=True)
class Contents:
    """All of an archive but the content of its files."""

    facts: Mapping[str, Any]
    """Its maker's facts about it."""
    entries: tuple[Entry, ...]
    left_out: tuple[str, ...] = ()
    """The items that its maker could not include, each with the reason."""
    total: int = field(default=0)
    """The size of all files in bytes."""

    def has(self, path: str) -> bool:
        """Whether there is a plain file with that path."""
        return any(each.path == path and each.kind == FILE for each in self.entries)


def link_stays_inside(path: str, target: str) -> bool:
    """Whether a link at ``path`` with that target stays in the folder, whatever else is in it.

    Only a target's first names may be ``..``: one that comes after another name could lead out by
    way of a second link.
    """
    if not target or target.startswith("/") or "\0" in target or len(target) > _MAX_TARGET:
        return False
    names = [name for name in target.split("/") if name not in {"", "."}]
    up = next((i for i, name in enumerate(names) if name != ".."), len(names))
    return ".." not in names[up:] and up <= path.count("/")


def encoded(contents: Contents) -> bytes:
    """The manifest."""
    rows = [
        [each.path, each.kind, each.mode, each.changed_ns, each.size, each.digest or each.target]
        for each in contents.entries
    ]
    document = {
        "format": FORMAT,
        **contents.facts,
        "left_out": list(contents.left_out),
        "entries": rows,
    }
    return json.dumps(document).encode()


def decoded(data: bytes) -> Contents:
    """The contents that a manifest lists, all of them checked. Raises ``ArchiveRefused``."""
    try:
        document = json.loads(data)
        number = document["format"]
        if number != FORMAT:
            raise ArchiveRefused(
                f"it has format {str(number)[:20]}, this version reads {FORMAT}; use the version that "
                "made it, or a newer one"
            )
        entries = tuple(_entry(*row) for row in document.pop("entries"))
        left_out = tuple(str(each) for each in document.pop("left_out"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ArchiveRefused(f"its manifest can't be read ({type(error).__name__})") from None
    _check_tree(entries)
    return Contents(document, entries, left_out, sum(each.size for each in entries))


def _entry(path: str, kind: str, mode: int, changed_ns: int, size: int, last: str) -> Entry:
    for given, wanted in ((path, str), (kind, str), (last, str)):
        if type(given) is not wanted:
            raise TypeError(wanted)
    for number in (mode, changed_ns, size):
        if type(number) is not int or number < 0:
            raise TypeError(int)
    is_file, is_link = kind == FILE, kind == LINK
    if not is_file and (size or (not is_link and last)):
        raise ArchiveRefused(f"its manifest is wrong about {path[:200]!r}")
    if is_file and len(last) != _DIGEST:
        raise ArchiveRefused(f"its manifest has no digest of {path[:200]!r}")
    return Entry(
        path,
        kind,
        mode & 0o777,
        min(changed_ns, 2**62),
        size,
        last if is_file else "",
        last if is_link else "",
    )


def _check_tree(entries: Iterable[Entry]) -> None:
    """Refuse a path that leads out, is named twice, or lies below something that is no folder."""
    folders, seen = {""}, set[str]()
    for each in entries:
        shown = repr(each.path[:200])
        try:
            names = names_of(each.path)
        except PathEscapes:
            raise ArchiveRefused(f"{shown} in it leads out of its folder") from None
        if "/".join(names) != each.path or not names or len(names) > MAX_DEPTH:
            raise ArchiveRefused(f"{shown} in it is no plain path")
        if each.path in seen:
            raise ArchiveRefused(f"{shown} is in it twice")
        if each.path.rpartition("/")[0] not in folders:
            raise ArchiveRefused(f"{shown} in it lies in no folder of it")
        if each.kind == LINK and not link_stays_inside(each.path, each.target):
            raise ArchiveRefused(f"the link {shown} in it leads out of its folder")
        if each.kind not in {FILE, FOLDER, LINK}:
            raise ArchiveRefused(f"{shown} in it is neither file nor folder nor link")
        seen.add(each.path)
        if each.kind == FOLDER:
            folders.add(each.path)
