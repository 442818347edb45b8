"""Tests enter packages as the product does: how many inner modules they import may only fall.

Each such import is work for whoever joins or moves a module. ``kit``, ``model`` and ``catalogue`` are
public as a whole.
"""

from __future__ import annotations

import ast

from tests.support.source_tree import PACKAGE, files, nodes_of

MOST = 344
SLACK = 10
"""The bound may stay that many modules above what there is."""
_PUBLIC = {"kit", "model", "catalogue"}


def inner_modules() -> set[str]:
    """The modules below a package's door that some test imports, by their paths."""
    found = set()
    for path in files("tests"):
        for node in nodes_of(path):
            names: list[str] = []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{each.name}" for each in node.names)]
            elif isinstance(node, ast.Import):
                names = [each.name for each in node.names]
            for name in names:
                parts = name.split(".")
                if parts[0] == "agentsup" and len(parts) > 2 and parts[1] not in _PUBLIC:
                    module = PACKAGE.joinpath(*parts[1:]).with_suffix(".py")
                    if module.is_file():
                        found.add(".".join(parts[1:]))
    return found


def test_no_more_inner_modules_are_imported_by_tests() -> None:
    count = len(inner_modules())
    assert count <= MOST, f"{count} inner modules, {MOST} are allowed: import the package"
    assert count >= MOST - SLACK, f"lower MOST to {count}"
