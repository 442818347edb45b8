"""Writes an archive from folders that may change meanwhile, and that agents can write into.

No link is followed but those that ``follows`` names; pipes, sockets and devices are left out; each
file is copied first, so that one that grows or shrinks does no harm. Everything here blocks.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import stat
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

from agentsup.kit import removal
from agentsup.kit.archive.contents import (
    FILE,
    FILES,
    FOLDER,
    LINK,
    MANIFEST,
    MAX_DEPTH,
    MAX_ENTRIES,
    ArchiveRefused,
    Contents,
    Entry,
    encoded,
    link_stays_inside,
)
from agentsup.kit.safe_files import kind_of

MAX_FILE: Final = 16 * 1024**3
"""A larger file is left out, and told."""
_PIECE: Final = 1024 * 1024
_IN_MEMORY: Final = 8 * _PIECE
_LEVEL: Final = 3
_MAX_OMITTED: Final = 1000
_PLAIN: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

Names = Callable[[str], bool]
"""Chooses by the path in the archive."""


def no_name(path: str) -> bool:
    """Chooses nothing."""
    return False


class Packer:
    """Adds members to an archive that is being written."""

    def __init__(self, tar: tarfile.TarFile, spool: Path) -> None:
        """``spool`` is a folder for copies of large files."""
        self._tar = tar
        self._spool = spool
        self._entries: list[Entry] = []
        self._left_out: list[str] = []

    def file(self, path: str, source: IO[bytes], *, mode: int, changed_ns: int, size: int) -> None:
        """Add a file with at most the first ``size`` bytes of ``source``."""
        digest = hashlib.sha256()
        with tempfile.SpooledTemporaryFile(_IN_MEMORY, dir=str(self._spool)) as copy:
            length = 0
            while piece := source.read(min(_PIECE, size - length)):
                digest.update(piece)
                copy.write(piece)
                length += len(piece)
            copy.seek(0)
            entry = Entry(path, FILE, mode & 0o777, changed_ns, length, digest.hexdigest())
            self._add(entry, copy)

    def content(self, path: str, data: bytes, *, mode: int = 0o600, changed_ns: int = 0) -> None:
        """Add a file with that content."""
        self.file(path, io.BytesIO(data), mode=mode, changed_ns=changed_ns, size=len(data))

    def folder(self, path: str, *, mode: int = 0o700, changed_ns: int = 0) -> None:
        """Add a folder; it must come before what is in it."""
        self._add(Entry(path, FOLDER, mode & 0o777, changed_ns))

    def tree(
        self, root: Path, to: str = "", *, skips: Names = no_name, follows: Names = no_name
    ) -> None:
        """Add what is below ``root``, as below ``to``. ``follows`` names links that people made;
        what such a link to a file leads to is added in its place. Raises ``OSError``."""
        top = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for path, name, parent, known in _walk(top, to, skips, self._omit):
                self._one(path, name, parent, known, is_followed=follows(path))
        finally:
            os.close(top)

    def finish(self, facts: Mapping[str, Any]) -> Contents:
        """Write the manifest; nothing can be added after it."""
        left_out = tuple(self._left_out[:_MAX_OMITTED])
        contents = Contents(
            facts, tuple(self._entries), left_out, sum(each.size for each in self._entries)
        )
        data = encoded(contents)
        member = tarfile.TarInfo(MANIFEST)
        member.size, member.mode = len(data), 0o600
        self._tar.addfile(member, io.BytesIO(data))
        return contents

    def _one(
        self, path: str, name: str, parent: int, known: os.stat_result, *, is_followed: bool
    ) -> None:
        mode, changed_ns = known.st_mode, known.st_mtime_ns
        if stat.S_ISDIR(mode):
            self.folder(path, mode=mode, changed_ns=changed_ns)
        elif stat.S_ISREG(mode) or (stat.S_ISLNK(mode) and is_followed):
            self._plain(path, name, parent, os.O_NOFOLLOW if stat.S_ISREG(mode) else 0)
        elif stat.S_ISLNK(mode):
            self._link(path, name, parent, changed_ns)
        else:
            self._omit(path, kind_of(mode))

    def _plain(self, path: str, name: str, parent: int, flags: int) -> None:
        try:
            descriptor = os.open(name, _PLAIN | flags, dir_fd=parent)
        except FileNotFoundError as error:
            if not flags:
                self._omit(path, f"a link to nothing ({error.strerror})")
            return
        except OSError as error:
            self._omit(path, error.strerror or str(error))
            return
        with os.fdopen(descriptor, "rb") as source:
            known = os.fstat(descriptor)
            if not stat.S_ISREG(known.st_mode):
                self._omit(path, f"a link to {kind_of(known.st_mode)} elsewhere")
            elif known.st_size > MAX_FILE:
                self._omit(path, f"larger than {MAX_FILE >> 30} GiB")
            else:
                self.file(
                    path,
                    source,
                    mode=known.st_mode,
                    changed_ns=known.st_mtime_ns,
                    size=known.st_size,
                )

    def _link(self, path: str, name: str, parent: int, changed_ns: int) -> None:
        try:
            target = os.readlink(name, dir_fd=parent)
        except OSError:
            return  # replaced meanwhile
        if link_stays_inside(path, target):
            self._add(Entry(path, LINK, 0o777, changed_ns, target=target))
        else:
            self._omit(path, f"a link that leads out, to {target[:200]}")

    def _add(self, entry: Entry, source: IO[bytes] | None = None) -> None:
        if len(self._entries) >= MAX_ENTRIES:
            raise ArchiveRefused(f"there are more than {MAX_ENTRIES} files")
        member = tarfile.TarInfo(FILES + entry.path)
        member.mode, member.size = entry.mode, entry.size
        member.mtime = entry.changed_ns // 10**9
        member.type = _TYPES[entry.kind]
        member.linkname = entry.target
        self._tar.addfile(member, source)
        self._entries.append(entry)

    def _omit(self, path: str, reason: str) -> None:
        self._left_out.append(f"{path}: {reason}")


_TYPES: Final = {FILE: tarfile.REGTYPE, FOLDER: tarfile.DIRTYPE, LINK: tarfile.SYMTYPE}


@contextmanager
def packed(target: Path) -> Iterator[Packer]:
    """The packer of the empty file ``target``; at the block's end all of it is on the disk.

    ``finish`` must have been called by then. Raises ``OSError``, ``ArchiveRefused``.
    """
    with target.open("r+b") as raw:
        with (
            gzip.GzipFile(filename="", mode="wb", compresslevel=_LEVEL, fileobj=raw) as packing,
            tarfile.open(
                fileobj=packing, mode="w", format=tarfile.PAX_FORMAT, errors="surrogateescape"
            ) as tar,
        ):
            yield Packer(tar, target.parent)
        raw.flush()
        os.fsync(raw.fileno())


def _walk(
    top: int, to: str, skips: Names, omit: Callable[[str, str], None]
) -> Iterator[tuple[str, str, int, os.stat_result]]:
    """Path, name, open folder and status of all that is below, a folder before its content."""
    prefix = f"{to}/" if to else ""
    for where, folders, files, parent in os.fwalk(".", dir_fd=top):
        base = prefix + where[2:] + "/" if where != "." else prefix
        walked = []
        for name in sorted((*folders, *files)):
            path, known = base + name, removal.status(parent, name)
            if known is None or skips(path):
                continue  # removed meanwhile, or not wanted
            if stat.S_ISDIR(known.st_mode):
                if path.count("/") >= MAX_DEPTH - 1:
                    omit(path, f"deeper than {MAX_DEPTH} folders")
                    continue
                if not os.access(name, os.R_OK | os.X_OK, dir_fd=parent):
                    omit(path, "no permission to look into it")
                else:
                    walked.append(name)
            yield path, name, parent, known
        folders[:] = walked
