"""Locations of programs that the daemon or its user starts by name: the folders of PATH, and the
packages of the programs there. A program that can write there decides what runs next time."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from agentsup.config.places import expanded, is_ours

_STARTED: Final = (
    *("sh", "bash", "env", "python3", "python", "node", "npm", "npx", "bun", "bunx", "deno"),
    *("uv", "uvx", "git"),
)
"""Programs by which other programs are started."""
_BINARIES: Final = ("bin", "sbin")
_BESIDE: Final = ("lib", "lib64", "libexec", "pyvenv.cfg")
"""Names beside a folder of programs: the libraries and settings that they load."""
_PACKAGES: Final = "node_modules"


def program_locations(
    environ: Mapping[str, str], names: Iterable[str], *, home: Path
) -> tuple[str, ...]:
    """Files and folders that only the user may change. Blocks.

    These are each folder of PATH, and each program of ``names`` with its package, as far as a
    program of this user could write there. Paths in ``home``, the daemon's home, are left out: they
    are closed, or an agent's own. For a folder that contains ``home`` or the user's home its files
    are named: everything below it would be too much.
    """
    path = environ.get("PATH", os.defpath)
    homes = (_real(home), _real(environ.get("HOME") or os.sep))
    found: set[Path] = set()
    for folder in map(Path, path.split(os.pathsep)):
        if folder.is_absolute():
            found |= {folder, *_with_libraries(_real(folder), homes)}
    for name in {*names, *_STARTED}:
        program = shutil.which(expanded(name, environ), path=path)
        if program is not None and Path(program).is_absolute():
            found |= {Path(program), *_package_of(_real(program), homes)}
    return tuple(sorted(str(each) for each in found if _is_wanted(each, homes)))


def without_folders_of(environ: Mapping[str, str], home: Path) -> dict[str, str]:
    """``environ`` with a PATH without folders in the daemon's ``home``. Blocks.

    Agents write there, and their files must not run for others.
    """
    path = environ.get("PATH")
    if path is None:
        return dict(environ)
    closed = _real(home)
    folders = [each for each in path.split(os.pathsep) if not _real(each).is_relative_to(closed)]
    return {**environ, "PATH": os.pathsep.join(folders) or os.defpath}


def _with_libraries(folder: Path, homes: tuple[Path, ...]) -> Iterator[Path]:
    if _holds(folder, homes):
        yield from _files_in(folder)
        return
    yield folder
    if folder.name in _BINARIES:
        yield from (folder.with_name(name) for name in _BESIDE)


def _package_of(program: Path, homes: tuple[Path, ...]) -> Iterator[Path]:
    parts = program.parts
    if _PACKAGES in parts:
        yield Path(*parts[: parts.index(_PACKAGES) + 1])
    elif program.parent.name in _BINARIES:
        yield from _with_libraries(program.parent, homes)
    else:
        yield program


def _files_in(folder: Path) -> Iterator[Path]:
    try:
        with os.scandir(folder) as entries:
            yield from [Path(each) for each in entries if not each.is_dir()]
    except OSError:
        return


def _is_wanted(path: Path, homes: tuple[Path, ...]) -> bool:
    real = _real(path)
    if real.is_relative_to(homes[0]) or _holds(real, homes):
        return False
    # If the path does not exist yet, the folder in which it would be created counts.
    there = next(each for each in (path, *path.parents) if os.path.lexists(each))
    return is_ours(there) or (there.is_symlink() and is_ours(there.parent))


def _holds(folder: Path, homes: tuple[Path, ...]) -> bool:
    return any(each.is_relative_to(folder) for each in homes)


def _real(path: str | Path) -> Path:
    return Path(os.path.realpath(path))
