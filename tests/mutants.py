"""A seeded sample of mutants of the product: how many of them the named tests kill.

    python -m tests.mutants --seed 7 --count 15 agentsup/approvals -- tests/unit/approvals

A mutant is one small mistake in one function: a comparison turned, a condition negated, a statement
dropped, a constant changed, an early return. It is killed where the tests fail, or last longer than
``--limit`` seconds. The same seed draws the same mutants from the same product, so that two selections
of tests can be compared: run it before and after a change of the tests. ``--only 3,8`` runs those
numbers of the sample alone, as those that the tests that stay leave alive.

Each mutant lives in the memory of a forked process; no file is changed. What the tests start as
programs of their own has no mistake in it, so tests of real processes kill nothing here.
"""

from __future__ import annotations

import argparse
import ast
import copy
import gc
import importlib
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType

import pytest

_ROOT = Path.cwd()
_LOADED = ("-W", "ignore::pytest.PytestAssertRewriteWarning")
"""The modules of the product have loaded libraries that have plugins for pytest."""
_TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def _functions(tree: ast.AST) -> Iterator[_Function]:
    """Functions of a module and methods of its classes; what they hold is theirs."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, _Function):
            yield node
        elif isinstance(node, ast.ClassDef | ast.If | ast.Try):
            yield from _functions(node)


def places(tree: ast.Module) -> list[tuple[int, int]]:
    """Where a mistake can be made: the number of a function, and of a node within it."""
    found = []
    for number, function in enumerate(_functions(tree)):
        body = {id(node) for statement in function.body for node in ast.walk(statement)}
        for at, node in enumerate(ast.walk(function)):
            kinds = ast.If | ast.IfExp | ast.While | ast.Assign | ast.AugAssign | ast.Return
            is_call = isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant)
            is_value = isinstance(node, ast.Constant) and type(node.value) in (int, bool)
            is_turned = isinstance(node, ast.Compare) and type(node.ops[0]) in _TURNED
            if node is function or (
                id(node) in body and (isinstance(node, kinds) or is_call or is_value or is_turned)
            ):
                found.append((number, at))
    return found


def mutated(tree: ast.Module, number: int, at: int) -> tuple[ast.Module, ast.AST, _Function]:
    """The module with the mistake in it, the place of that, and the function around it."""
    tree = copy.deepcopy(tree)
    function = list(_functions(tree))[number]
    node = list(ast.walk(function))[at]
    match node:
        case ast.Compare():
            node.ops[0] = _TURNED[type(node.ops[0])]()
        case ast.If() | ast.IfExp() | ast.While():
            node.test = ast.UnaryOp(ast.Not(), node.test)
        case ast.Constant(value=value):
            node.value = not value if isinstance(value, bool) else value + 1  # type: ignore[operator]
        case ast.Return():
            node.value = None
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            node.body.insert(0, ast.Return(None))
        case _:
            for parent in ast.walk(function):
                for name in ("body", "orelse", "finalbody"):
                    body = getattr(parent, name, None)
                    if isinstance(body, list) and node in body:
                        body[body.index(node)] = ast.Pass()
    first = function.body[0]
    for new in ast.walk(function):
        if (
            hasattr(new, "_attributes")
            and "lineno" in new._attributes
            and not hasattr(new, "lineno")
        ):
            ast.copy_location(new, node if hasattr(node, "lineno") else first)
    return ast.fix_missing_locations(tree), node, function


def _codes(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _codes(each)


def put_in_place(tree: ast.Module, file: Path, function: _Function) -> bool:
    """Give the loaded function the code of the mutated module; whether it is loaded."""
    line = min([function.lineno, *(each.lineno for each in function.decorator_list)])
    (code,) = (
        each
        for each in _codes(compile(tree, str(file), "exec"))
        if each.co_firstlineno == line and each.co_name == function.name
    )
    live = [
        each
        for each in gc.get_objects()
        if isinstance(each, FunctionType)
        and each.__code__.co_filename == str(file)
        and (each.__code__.co_firstlineno, each.__code__.co_name) == (line, function.name)
    ]
    for each in live:
        if each.__code__.co_freevars == code.co_freevars:
            each.__code__ = code
    return bool(live)


def killed(
    mutant: tuple[ast.Module, Path, _Function] | None, tests: list[str], limit: float
) -> bool:
    """Whether the tests fail, in a process of their own."""
    child = os.fork()
    if not child:
        os.setsid()
        quiet = os.open(os.devnull, os.O_RDWR)
        for each in (0, 1, 2):
            os.dup2(quiet, each)
        code = 3
        if mutant is None or put_in_place(*mutant):
            code = pytest.main(["-x", "-q", "-n", "0", "-p", "no:cacheprovider", *_LOADED, *tests])
        os._exit(int(code))
    until = time.monotonic() + limit
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) != 0
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("modules", nargs="+", help="modules or packages, below this folder")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=15)
    parser.add_argument("--only", default="", help="numbers of the sample, by comma")
    parser.add_argument(
        "--limit", type=float, default=120, help="seconds for the tests of one mutant"
    )
    given = sys.argv[1:]
    cut = given.index("--") if "--" in given else len(given)
    options, tests = parser.parse_args(given[:cut]), given[cut + 1 :]
    paths = [_ROOT / name for name in options.modules]
    files = sorted(
        file for path in paths for file in ([path] if path.suffix else path.rglob("*.py"))
    )
    trees = {file: ast.parse(file.read_text()) for file in files}
    every = [(file, *place) for file in files for place in places(trees[file])]
    sample = random.Random(options.seed).sample(every, min(options.count, len(every)))
    for file in files:
        importlib.import_module(".".join(file.relative_to(_ROOT).with_suffix("").parts))
    if killed(None, tests, options.limit):
        raise SystemExit("the tests fail without a mutant, or take longer than the limit")
    only = {int(number) for number in options.only.split(",") if number}
    dead = 0
    for number, (file, function, at) in enumerate(sample):
        if not only or number in only:
            tree, node, around = mutated(trees[file], function, at)
            end = killed((tree, file, around), tests, options.limit)
            dead += end
            where = f"{file.relative_to(_ROOT)}:{getattr(node, 'lineno', 0)} {around.name}"
            print(
                f"{number} {'killed' if end else 'alive '} {where} {type(node).__name__}",
                flush=True,
            )
    print(f"killed {dead} of {len(only) or len(sample)}")


if __name__ == "__main__":
    main()
