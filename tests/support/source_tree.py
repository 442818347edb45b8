"""The code as tests of the house look at it: each file is read and parsed once for all of them.

What it hands out is shared, so nobody changes it.
"""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = ROOT / "agentsup"


@cache
def files(*folders: str) -> tuple[Path, ...]:
    """The Python files below folders of the repository, sorted folder by folder."""
    return tuple(path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")))


def modules() -> tuple[Path, ...]:
    """The product's modules."""
    return files("agentsup")


def shown(path: Path) -> str:
    """A path as findings name it: from the root of the repository."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


@cache
def text_of(path: Path) -> str:
    """What a file says."""
    return path.read_text(encoding="utf-8")


@cache
def tree_of(path: Path) -> ast.Module:
    """A file, parsed."""
    with _no_collection():
        return ast.parse(text_of(path))


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a file, in the order of ``ast.walk``."""
    tree = tree_of(path)
    with _no_collection():
        return tuple(ast.walk(tree))


@contextmanager
def _no_collection() -> Iterator[None]:
    """A tree is no garbage: the collector would look at it for twice as long as parsing takes."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
