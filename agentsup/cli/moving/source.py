"""Reading the home of another product. What is read there may be anybody's.

Nothing outside the folder is read, no link is followed, nothing is run, and each file, list and
walk has a limit. A SQLite file is copied before it is opened, so that its owner is not disturbed,
and read without anything it defines itself being trusted.
"""

from __future__ import annotations

import json
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import yaml

from agentsup.cli.connect.failure import CommandFailed
from agentsup.cli.moving.json5 import BadJson5, parse_json5
from agentsup.cli.moving.values import parse_yaml
from agentsup.kit.safe_files import GuardedFolder
from agentsup.store import foreign_rows

MAX_TEXT: Final = 4 * 1024 * 1024
MAX_YAML: Final = 512 * 1024
MAX_FILE: Final = 16 * 1024 * 1024
"""The largest file of a workspace that comes."""
MAX_IN_ALL: Final = 512 * 1024 * 1024
"""The most bytes that are read from files."""
MAX_DATABASE: Final = 512 * 1024 * 1024
MAX_WALKED: Final = 5_000
MAX_DEPTH: Final = 12
MAX_ROWS: Final = 200_000
_LEFT_OUT: Final = frozenset({".git", ".hg", "node_modules", "__pycache__", ".venv", ".cache"})


class SourceFolder:
    """The folder of the other product. Paths are relative to it; missing files are empty."""

    def __init__(self, root: Path) -> None:
        """``root`` is a path that the person gave; it is followed once if it is a link."""
        try:
            self.root = root.expanduser().resolve(strict=True)
        except (OSError, RuntimeError) as error:
            raise CommandFailed(f"{root} can't be read: {_reason(error)}") from None
        if not self.root.is_dir():
            raise CommandFailed(f"{root} is no folder; name the home of the other product")
        self._folder = GuardedFolder(self.root)
        self._left = MAX_IN_ALL
        self.skipped: dict[str, str] = {}
        """Paths that could not be read, with the reason."""

    # -- files -------------------------------------------------------------------------------------

    def has(self, path: str) -> bool:
        """Whether there is a plain file or a directory with that name; no link counts."""
        return self._mode(path) is not None

    def is_folder(self, path: str) -> bool:
        """Whether there is a directory with that name."""
        return stat.S_ISDIR(self._mode(path) or 0)

    def _mode(self, path: str) -> int | None:
        try:
            mode = self._folder.stat(path).st_mode
        except OSError:
            return None
        return mode if stat.S_ISREG(mode) or stat.S_ISDIR(mode) else None

    def data(self, path: str, limit: int = MAX_FILE) -> bytes | None:
        """The content of a plain file; None if there is none, or it can't be read or is too long."""
        try:
            data, size = self._folder.head(path, limit)
        except FileNotFoundError:
            return None
        except OSError as error:
            self.skipped[path] = _reason(error)
            return None
        if size > limit:
            self.skipped[path] = f"it has {size:,} bytes, and {limit:,} are read at most"
            return None
        self._left -= len(data)
        if self._left < 0:
            self.skipped[path] = f"more than {MAX_IN_ALL:,} bytes in all are not read"
            return None
        return data

    def text(self, path: str) -> str:
        """The text of a file, without NUL; empty if there is none."""
        data = self.data(path, MAX_TEXT)
        return data.decode("utf-8-sig", "replace").replace("\0", "") if data else ""

    def json(self, path: str) -> Any:
        """The value of a JSON file; None if there is none or it is wrong."""
        return self._parsed(path, json.loads)

    def json5(self, path: str) -> Any:
        """The value of a JSON5 file; None if there is none or it is wrong."""
        return self._parsed(path, parse_json5)

    def yaml(self, path: str) -> Any:
        """The value of a YAML file, read without tags and aliases; None if it is wrong."""
        return self._parsed(path, parse_yaml)

    def _parsed(self, path: str, parse: Callable[[str], Any]) -> Any:
        text = self.text(path)
        if not text.strip():
            return None
        if parse is parse_yaml and len(text) > MAX_YAML:
            self.skipped[path] = f"it has more than {MAX_YAML:,} characters"
            return None
        try:
            return parse(text)
        except (ValueError, RecursionError, yaml.YAMLError) as error:
            self.skipped[path] = f"it is not understood: {_first_line(error)}"
            return None

    def json_lines(self, path: str, most: int = MAX_ROWS) -> Iterator[Mapping[str, Any]]:
        """The objects of a JSON-lines file, at most ``most``; other lines are passed over."""
        data = self.data(path, MAX_FILE * 4)
        for line in (data or b"").split(b"\n")[:most]:
            with suppress(ValueError, RecursionError):
                found = json.loads(line.decode("utf-8", "replace"))
                if isinstance(found, dict):
                    yield found

    # -- folders -----------------------------------------------------------------------------------

    def names(self, path: str = "", most: int = 1_000) -> list[str]:
        """The names of plain files and directories in a directory; links are left out."""
        try:
            found, _ = self._folder.list(path, most)
        except OSError:
            return []
        return [
            n for n, known in found if stat.S_ISREG(known.st_mode) or stat.S_ISDIR(known.st_mode)
        ]

    def folders(self, path: str = "") -> list[str]:
        """The names of directories in a directory."""
        return [name for name in self.names(path) if self.is_folder(_below(path, name))]

    def walk(self, path: str) -> list[str]:
        """The plain files below a directory, by path, at most ``MAX_WALKED``.

        Links, other kinds of files and what is too long are noted in ``skipped``.
        """
        found: list[str] = []
        waiting = [(path, 0)]
        while waiting:
            folder, depth = waiting.pop()
            try:
                entries, is_cut = self._folder.list(folder, MAX_WALKED)
            except OSError as error:
                self.skipped[folder] = _reason(error)
                continue
            if is_cut:
                self.skipped[folder] = f"it has more than {MAX_WALKED:,} entries"
            for name, known in entries:
                below = _below(folder, name)
                if stat.S_ISDIR(known.st_mode):
                    if name not in _LEFT_OUT and depth < MAX_DEPTH:
                        waiting.append((below, depth + 1))
                elif not stat.S_ISREG(known.st_mode):
                    self.skipped[below] = "links and special files are not followed"
                elif known.st_size > MAX_FILE:
                    self.skipped[below] = f"it has more than {MAX_FILE:,} bytes"
                elif name == ".env" or name.startswith(".env."):
                    self.skipped[below] = "it holds keys, which agents do not get as files"
                else:
                    found.append(below)
                if len(found) >= MAX_WALKED:
                    self.skipped[path] = f"of its files the first {MAX_WALKED:,} come"
                    return sorted(found)
        return sorted(found)

    def is_executable(self, path: str) -> bool:
        """Whether the owner may run the file."""
        try:
            return bool(self._folder.stat(path).st_mode & stat.S_IXUSR)
        except OSError:
            return False

    # -- databases ---------------------------------------------------------------------------------

    def rows(self, path: str, statement: str, most: int = MAX_ROWS) -> list[dict[str, Any]]:
        """The rows that ``statement`` (ours) gives in a SQLite file, at most ``most``."""
        if not self.has(path):
            return []
        try:
            with tempfile.TemporaryDirectory(prefix="agentsup-moving-") as made:
                copy = Path(made) / "copy.db"
                for suffix in ("", "-wal"):
                    if not self._copy(path + suffix, copy.with_name(copy.name + suffix)):
                        return []
                return foreign_rows(copy, statement, most)
        except OSError as error:
            self.skipped[path] = _reason(error)
            return []

    def _copy(self, path: str, to: Path) -> bool:
        try:
            size = self._folder.stat(path).st_size
        except FileNotFoundError:
            return True
        if size > MAX_DATABASE:
            self.skipped[path] = f"it has more than {MAX_DATABASE:,} bytes"
            return False
        with self._folder.open(path) as source, to.open("wb") as target:
            left = MAX_DATABASE
            while left > 0 and (piece := source.read(min(left, 1024 * 1024))):
                target.write(piece)
                left -= len(piece)
        return True


def _below(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name


def _first_line(error: Exception) -> str:
    kind = "" if isinstance(error, BadJson5) else f"{type(error).__name__}: "
    return kind + str(error).partition("\n")[0][:200]


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error).partition("\n")[0][:200]
