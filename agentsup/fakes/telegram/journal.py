"""The fake's records, as documents in memory and one append-only file of JSON lines.

A document is JSON under (kind, key). Each change is one line, flushed to the operating system, so
that it outlives a kill of the fake itself; a torn last line is dropped. The number of lines is the
cursor by which readers wait for the next change.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TextIO

Document = dict[str, Any]
_REMEMBERED: Final = 20_000


class Change:
    """One change: its number, and which document it was."""

    __slots__ = ("key", "kind", "number")

    def __init__(self, number: int, kind: str, key: str) -> None:
        """Change ``number`` touched document ``key`` of ``kind``."""
        self.number = number
        self.kind = kind
        self.key = key


class Journal:
    """Documents by kind and key; ``put`` and ``drop`` are durable against a kill."""

    def __init__(self, path: Path) -> None:
        """Read ``path`` if it exists; ``OSError`` where that is impossible."""
        self._documents: dict[str, dict[str, Document]] = {}
        self.cursor = 0
        self.changes: deque[Change] = deque(maxlen=_REMEMBERED)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._read(path)
        self._file: TextIO = path.open("a", encoding="utf-8")

    def _read(self, path: Path) -> None:
        if not path.exists():
            return
        data = path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole != len(data):
            with path.open("r+b") as torn:
                torn.truncate(whole)
        for line in data[:whole].splitlines():
            kind, key, document = json.loads(line)
            self._apply(kind, key, document)

    def _apply(self, kind: str, key: str, document: Document | None) -> None:
        of_kind = self._documents.setdefault(kind, {})
        if document is None:
            of_kind.pop(key, None)
        else:
            of_kind[key] = document
        self.cursor += 1
        self.changes.append(Change(self.cursor, kind, key))

    def put(self, kind: str, key: str | int, document: Document) -> None:
        """Set a document. Later changes of the object need another ``put``."""
        self._write(kind, str(key), document)

    def drop(self, kind: str, key: str | int) -> None:
        """Forget a document; nothing happens if there is none."""
        if str(key) in self._documents.get(kind, {}):
            self._write(kind, str(key), None)

    def _write(self, kind: str, key: str, document: Document | None) -> None:
        self._file.write(json.dumps([kind, key, document], ensure_ascii=True) + "\n")
        self._file.flush()
        self._apply(kind, key, document)

    def get(self, kind: str, key: str | int) -> Document | None:
        """The document itself (not a copy), or None."""
        return self._documents.get(kind, {}).get(str(key))

    def all(self, kind: str) -> Iterator[Document]:
        """Documents of a kind, in the order in which their keys first came."""
        yield from list(self._documents.get(kind, {}).values())

    def close(self) -> None:
        """Close the file; what was put is on disk already."""
        self._file.close()
