"""Checks an archive as a whole, and unpacks one that was checked. Everything here blocks.

An archive may be hostile. It is read as a stream, with bounds on the number of its members, on
their size and on what a header may bring. Nothing is written while it is checked. What is unpacked
goes into a new folder, by paths that were checked, and is compared with its digests once more.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

from agentsup.kit.archive.contents import (
    FILE,
    FILES,
    FOLDER,
    LINK,
    MANIFEST,
    MAX_ENTRIES,
    ArchiveRefused,
    Contents,
    Entry,
    decoded,
)

MAX_MANIFEST: Final = 256 * 1024**2
_MAX_HEADER: Final = 256 * 1024
"""The most bytes that are read to find the next member, with its headers."""
_PIECE: Final = 1024 * 1024
_PADDING: Final = 64 * 1024
_BROKEN: Final = (
    *(tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile),
    *(ValueError, OverflowError, RecursionError),
)


class _Pieces:
    """A stream for ``tarfile`` that only goes forward, a bounded piece at a time: a header can claim
    any length, or that more of it follows, and would be read into memory."""

    def __init__(self, stream: gzip.GzipFile) -> None:
        self._stream = stream
        self.left = _MAX_HEADER
        """Number of bytes that may be read until there is another member."""

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _PIECE:
            raise ArchiveRefused("it has a header that is too long")
        data = self._stream.read(size)
        self.left -= len(data)
        if self.left < 0:
            raise ArchiveRefused("it has a header that is too long")
        return data

    def tell(self) -> int:
        return self._stream.tell()

    def seek(self, offset: int, whence: int = 0) -> int:
        if whence or offset < self._stream.tell():
            raise ArchiveRefused("its members lie in no order")
        return self._stream.seek(offset)


@contextmanager
def _refusing() -> Iterator[None]:
    """Raise what a broken file leads to as ``ArchiveRefused``."""
    try:
        yield
    except _BROKEN as error:
        why = str(error) or type(error).__name__
        raise ArchiveRefused(f"it is damaged or cut off ({why[:200]})") from None


def _members(path: Path, limit: int) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    """Each member with its content. Raises ``ArchiveRefused`` if all are larger than ``limit``."""
    total = names = 0
    with path.open("rb") as raw, gzip.GzipFile(fileobj=raw, mode="rb") as stream:
        pieces = _Pieces(stream)
        source: Any = pieces
        with tarfile.open(fileobj=source, mode="r:", errors="surrogateescape") as tar:
            for count, member in enumerate(iter(tar.next, None)):
                tar.members = []  # type: ignore[attr-defined]  # it would remember all of them
                if count > MAX_ENTRIES:
                    raise ArchiveRefused(f"it has more than {MAX_ENTRIES} members")
                if tar.pax_headers or member.issparse():
                    raise ArchiveRefused("it was not written by agentsup")
                names += len(member.name) + len(member.linkname)
                if names > MAX_MANIFEST:
                    raise ArchiveRefused("the names in it are longer than its manifest can be")
                total += max(0, member.size)
                if total > limit:
                    raise ArchiveRefused(
                        f"its files have more than {limit / 1e6:,.0f} MB, which have no room here"
                    )
                pieces.left = max(0, member.size)
                yield member, tar.extractfile(member) if member.isfile() else None
                pieces.left = _MAX_HEADER
        if any(stream.read(_PADDING)) or stream.read(1):  # at its end its checksum is compared
            raise ArchiveRefused("something comes after its end")


def check(path: Path, *, limit: int) -> Contents:
    """Read all of the archive at ``path`` and compare it with its manifest; nothing is written.

    Raises ``ArchiveRefused``, also for one whose files have more than ``limit`` bytes; ``OSError``.
    """
    found: dict[str, tuple[str, int, str]] = {}
    manifest: bytes | None = None
    with _refusing():
        for member, content in _members(path, limit + MAX_MANIFEST):
            if manifest is not None:
                raise ArchiveRefused("something comes after its manifest")
            if member.name == MANIFEST and content is not None and member.size <= MAX_MANIFEST:
                manifest = b"".join(_pieces_of(content))
                continue
            name = member.name.removeprefix(FILES)
            if name == member.name or name in found:
                raise ArchiveRefused(f"{member.name[:200]!r} in it is unexpected")
            found[name] = _seen(member, content)
    if manifest is None:
        raise ArchiveRefused("it is cut off: its manifest is missing")
    contents = decoded(manifest)
    wanted = {
        each.path: (each.kind, each.size, each.digest or each.target) for each in contents.entries
    }
    if wanted != found:
        wrong = next(iter(sorted(dict(wanted.items() ^ found.items()))))
        raise ArchiveRefused(f"{wrong[:200]!r} in it is not what its manifest says")
    return contents


def _seen(member: tarfile.TarInfo, content: IO[bytes] | None) -> tuple[str, int, str]:
    if member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and content is not None:
        digest = hashlib.sha256()
        for piece in _pieces_of(content):
            digest.update(piece)
        return FILE, member.size, digest.hexdigest()
    if member.type == tarfile.DIRTYPE:
        return FOLDER, 0, ""
    if member.type == tarfile.SYMTYPE:
        return LINK, 0, member.linkname
    raise ArchiveRefused(f"{member.name[:200]!r} in it is neither file nor folder nor link")


def _pieces_of(content: IO[bytes]) -> Iterator[bytes]:
    while piece := content.read(_PIECE):
        yield piece


def content_of(path: Path, contents: Contents, name: str, *, most: int) -> bytes:
    """The content of one file of an archive that was checked; empty if there is none.

    Raises ``ArchiveRefused`` if it has more than ``most`` bytes or was changed since, ``OSError``.
    """
    entry = next((each for each in contents.entries if each.path == name), None)
    if entry is None or entry.kind != FILE:
        return b""
    if entry.size > most:
        raise ArchiveRefused(f"{name} in it has more than {most:,} bytes")
    with _refusing():
        for member, content in _members(path, contents.total + MAX_MANIFEST):
            if member.name == FILES + name and content is not None and member.size <= most:
                data = b"".join(_pieces_of(content))
                if hashlib.sha256(data).hexdigest() == entry.digest:
                    return data
    raise ArchiveRefused("it was changed while it was read")


def unpack(
    path: Path, contents: Contents, into: Path, *, closed: Callable[[str], bool] = lambda _: False
) -> None:
    """Write what ``check`` found into the new folder ``into``, and flush it to the disk.

    What ``closed`` names is readable by its owner only. Raises ``ArchiveRefused`` if the archive
    was changed since, ``OSError``; the caller removes the folder then.
    """
    known = {each.path: each for each in contents.entries}
    into.mkdir(mode=0o700)
    for each in contents.entries:
        if each.kind == FOLDER:
            (into / each.path).mkdir(mode=0o700)
    left = {each.path for each in contents.entries if each.kind == FILE}
    with _refusing():
        for member, content in _members(path, contents.total + MAX_MANIFEST):
            entry = known.get(member.name.removeprefix(FILES))
            if member.name != MANIFEST and entry is not None and content is not None:
                _write(into / entry.path, entry, content, is_closed=closed(entry.path))
                left.discard(entry.path)
    if left:
        raise ArchiveRefused("it was changed while it was read")
    for each in contents.entries:
        if each.kind == LINK:
            (into / each.path).symlink_to(each.target)
    for each in reversed(contents.entries):
        if each.kind == FOLDER:  # a folder's own mode may forbid to write into it
            mode = each.mode & 0o700 if closed(each.path) else each.mode
            (into / each.path).chmod(mode | 0o700)
            os.utime(into / each.path, ns=(each.changed_ns, each.changed_ns))
    os.sync()


def _write(path: Path, entry: Entry, content: IO[bytes], *, is_closed: bool) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    digest = hashlib.sha256()
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        for piece in _pieces_of(content):
            digest.update(piece)
            file.write(piece)
        file.flush()
        os.fchmod(file.fileno(), entry.mode & 0o700 if is_closed else entry.mode)
        os.utime(file.fileno(), ns=(entry.changed_ns, entry.changed_ns))
    if digest.hexdigest() != entry.digest:
        raise ArchiveRefused("it was changed while it was read")
