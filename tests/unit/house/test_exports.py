"""A package is entered through what it exports: by its ``__init__``, or that of a folder in it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.source_tree import PACKAGE, ROOT, files, modules, nodes_of, shown, tree_of

OPEN = {"kit", "model", "catalogue"}
"""Each module of these is public: values and tools without an inside."""
LAZY = sorted(PACKAGE.rglob("__init__.pyi"))
STARTS = {"agentsup.cli.main"}
"""What ``__main__`` starts: loading anything else first would cost each short command time."""


def _imports() -> Iterator[tuple[Path, str, str]]:
    """Each name that a module of ours imports from another package of ours: who, from where, what."""
    for path in modules():
        own = path.relative_to(PACKAGE).parts[0]
        for node in nodes_of(path):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("agentsup."):
                if str(node.module).split(".")[1] in {own, *OPEN} or node.module in STARTS:
                    continue
                for alias in node.names:
                    yield path, str(node.module), alias.name


def _exported(folder: Path) -> set[str]:
    """What a folder exports: the names of its stub, or of its ``__all__``."""
    stub = folder / "__init__.pyi"
    if stub.exists():
        found = (n for n in tree_of(stub).body if isinstance(n, ast.ImportFrom))
        return {alias.name for node in found for alias in node.names}
    for node in tree_of(folder / "__init__.py").body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def test_other_packages_import_what_a_package_exports() -> None:
    past = {
        f"{shown(path)}: from {module} import {name}"
        for path, module, name in _imports()
        if path.relative_to(PACKAGE).parts[0] != "fakes"
        if (ROOT / module.replace(".", "/")).with_suffix(".py").is_file()
        or name not in _exported(ROOT / module.replace(".", "/"))
    }
    assert not past, (
        "export these in the __init__.pyi of their folder and import them from the folder:\n"
        + "\n".join(sorted(past))
    )


def test_what_is_exported_is_imported() -> None:
    asked = {
        (node.module, alias.name)
        for path in files("agentsup", "tests", "benchmarks")
        for node in nodes_of(path)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    idle = {
        f"{module}.{name}"
        for stub in LAZY
        for module in [".".join(stub.parent.relative_to(ROOT).parts)]
        for name in _exported(stub.parent)
        if (module, name) not in asked
    }
    assert not idle, f"nobody imports these from their folder any more: {sorted(idle)}"


@pytest.mark.parametrize("stub", LAZY, ids=lambda path: ".".join(path.parent.parts[-2:]))
def test_a_stub_has_names_of_modules_beside_it(stub: Path) -> None:
    """Type checkers read the stub, programs the modules: both know the same names."""
    wrong = set()
    for node in tree_of(stub).body:
        assert isinstance(node, ast.ImportFrom), f"{shown(stub)} has more than imports"
        assert node.level == 1, f"{shown(stub)} imports from another folder"
        where = stub.parent.joinpath(*(node.module or "").split("."))
        for alias in node.names:
            if node.module is None:
                is_there = (where / f"{alias.name}.py").is_file()
            else:
                is_there = alias.name in _defined(where.with_suffix(".py"))
            if not is_there:
                wrong.add(alias.name)
    assert not wrong, f"{shown(stub)} exports what is not there: {sorted(wrong)}"


def _defined(path: Path) -> set[str]:
    """The names that a module binds at its top."""
    found: set[str] = set()
    for node in tree_of(path).body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        elif isinstance(node, ast.AnnAssign):
            found.add(ast.unparse(node.target))
    return found
