"""Public names and methods without a caller in the product are dead, or there for tests alone.

A name of a module counts as used when its own module reads it elsewhere, when another module
imports it (through a package's ``__init__``, too), or when anything reads an attribute so called. A
method counts as used when anything reads an attribute of its name, so a dead method that shares its
name with a living one is not found: what is listed is dead, and not all that is.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.support.source_tree import ROOT, modules, nodes_of, tree_of

CALLED_BY_DECORATOR = re.compile(
    r"^_?(get|post|tool)\(|validator|serializer|\.command|^asks\(|callback|register|computed_field|overload|override"
)
"""Decorators of what a library or the route table calls."""
OFFERED = "agentsup.fakes."
"""Offered to tests and benchmarks."""
ALLOWED: dict[str, str] = {
    "agentsup.api.server.listener:HttpProtocol.handle_error": "aiohttp calls it",
    "agentsup.cli.chat.terminal:CommandCompleter.get_completions": "prompt_toolkit calls it",
    "agentsup.cli.output.options:ReadableGroup.collect_usage_pieces": "typer calls it",
    "agentsup.cli.output.options:_Readable.collect_usage_pieces": "typer calls it",
    "agentsup.config.environment_values:_Merged.settings_customise_sources": "pydantic-settings calls it",
    "agentsup.engines.llm.openai_client:_ChatModel._streamed_response_cls": "pydantic-ai reads it",
    "agentsup.engines.llm.toolset:HostToolset.call_tool": "pydantic-ai calls it",
    "agentsup.engines.llm.toolset:HostToolset.get_tools": "pydantic-ai calls it",
    "agentsup.observe.metrics_page:_Families.collect": "prometheus_client calls it",
}
"""Names without a caller in the product, with the reason. Keep it short."""


class _Reads:
    """The names and attributes that some code reads."""

    def __init__(self, nodes: Iterable[ast.AST]) -> None:
        self.names: Counter[str] = Counter()
        self.attributes: set[str] = set()
        for node in nodes:
            if isinstance(node, ast.Name):
                self.names[node.id] += 1
            elif isinstance(node, ast.Attribute):
                self.attributes.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                self.attributes.add(node.value)  # ``getattr`` and tables of names


@dataclass(frozen=True)
class _Module:
    name: str
    tree: ast.Module
    nodes: Sequence[ast.AST]
    reads: _Reads
    is_package: bool
    imported: dict[tuple[str, str], str] = field(default_factory=dict)
    """(module, name) that it imports, and the name it has here."""


def _read_modules() -> list[_Module]:
    found = []
    for path in modules():
        parts = path.relative_to(ROOT).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        tree, nodes = tree_of(path), nodes_of(path)
        exports = _exports(tree)
        reads = _Reads(node for node in nodes if id(node) not in exports)
        name = ".".join(parts[:-1] if is_package else parts)
        module = _Module(name, tree, nodes, reads, is_package)
        if is_package and (stub := path.with_suffix(".pyi")).is_file():
            nodes = (*nodes, *(_from_root(each, name) for each in nodes_of(stub)))
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for each in node.names:
                    module.imported[node.module, each.name] = each.asname or each.name
        found.append(module)
    return found


def _from_root(node: ast.AST, package: str) -> ast.AST:
    """An import of a package's stub, which is relative to it, as modules write it."""
    if isinstance(node, ast.ImportFrom) and node.level:
        module = f"{package}.{node.module}" if node.module else package
        return ast.ImportFrom(module, node.names, 0)
    return node


def _exports(tree: ast.Module) -> set[int]:
    """The ids of the nodes of ``__all__``, which only names what is offered."""
    return {
        id(node)
        for each in tree.body
        if isinstance(each, ast.Assign) and "__all__" in map(ast.unparse, each.targets)
        for node in ast.walk(each)
    }


def _top_level(tree: ast.Module) -> dict[str, ast.stmt]:
    found: dict[str, ast.stmt] = {}
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found[node.name] = node
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id: node for target in targets if isinstance(target, ast.Name)}
    return found


def _reads_of_its_own(module: _Module, name: str, node: ast.stmt) -> int:
    """How often the module reads the name outside the name's own definition."""
    inner = _Reads(ast.walk(node))
    return module.reads.names[name] - inner.names[name]


def _decorators(node: ast.stmt) -> str:
    return " ".join(ast.unparse(each) for each in getattr(node, "decorator_list", []))


def _dead_names(modules: list[_Module], attributes: set[str]) -> list[str]:
    packages = {module.name: module for module in modules if module.is_package}
    used: set[tuple[str, str]] = set()
    for module in modules:
        for where, here in module.imported.items():
            if not module.is_package or module.reads.names[here]:  # else it is only handed on
                used.add(_origin(where, packages))
    return [
        f"{module.name}:{name}"
        for module in modules
        for name, node in _top_level(module.tree).items()
        if not name.startswith("__")
        and (module.name, name) not in used
        and name not in attributes
        and _reads_of_its_own(module, name, node) <= 0
        and not CALLED_BY_DECORATOR.search(_decorators(node))
    ]


def _origin(where: tuple[str, str], packages: dict[str, _Module]) -> tuple[str, str]:
    """The module that defines a name, which a package's ``__init__`` may only hand on."""
    source, name = where
    if source not in packages:
        return where
    known = packages[source].imported.items()
    found = next((one for one, here in known if here == name and one[0] != source), None)
    return where if found is None else _origin(found, packages)


def _dead_methods(modules: list[_Module], attributes: set[str]) -> list[str]:
    return [
        f"{module.name}:{owner.name}.{node.name}"
        for module in modules
        for owner in module.nodes
        if isinstance(owner, ast.ClassDef)
        for node in owner.body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and not node.name.startswith(("__", "visit_"))
        and node.name not in attributes
        and not CALLED_BY_DECORATOR.search(_decorators(node))
    ]


def test_every_public_name_has_a_caller_in_the_product() -> None:
    modules = _read_modules()
    attributes = {name for module in modules for name in module.reads.attributes}
    dead = {*_dead_names(modules, attributes), *_dead_methods(modules, attributes)}
    dead = {name for name in dead if not name.startswith(OFFERED)}
    assert dead - ALLOWED.keys() == set(), "delete it, or move it to tests/support"
    assert ALLOWED.keys() - dead == set(), "these have callers now: shorten ALLOWED"
