"""A seeded sample of mutants of the product: how many of them the named tests kill.

    python -m tests.mutants --seed 7 --count 15 agentsup/approvals -- tests/unit/approvals

A mutant is one small mistake in one module: a comparison turned, a condition negated, a statement
dropped, a constant changed, an early return. It is killed where the tests fail, or last longer than
``--limit`` seconds. The same seed draws the same mutants from the same product, so that two selections
of tests can be compared: run it before and after a change of the tests. ``--only 3,8`` runs those
numbers of the sample alone, as those that the tests killed before.

The tests run in a copy of this tree: nothing here is changed, and two runs may go side by side.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


def places(tree: ast.Module) -> list[tuple[int, str]]:
    """Where a mistake can be made: the node's number in the order of ``ast.walk``, and which one."""
    found: list[tuple[int, str]] = []
    inside = {
        id(node)
        for part in ast.walk(tree)
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)
        for statement in part.body
        for node in ast.walk(statement)
    }
    for number, node in enumerate(ast.walk(tree)):
        if id(node) not in inside:
            continue
        if isinstance(node, ast.Compare) and type(node.ops[0]) in _TURNED:
            found.append((number, "turn"))
        elif isinstance(node, ast.If | ast.IfExp | ast.While):
            found.append((number, "negate"))
        elif isinstance(node, ast.Assign | ast.AugAssign) or (
            isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant)
        ):
            found.append((number, "drop"))
        elif isinstance(node, ast.Constant) and type(node.value) in (int, bool):
            found.append((number, "change"))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.append((number, "return"))
        elif isinstance(node, ast.Return) and node.value is not None:
            found.append((number, "nothing"))
    return found


def mutated(tree: ast.Module, number: int, kind: str) -> tuple[str, int]:
    """The source with the mistake in it, and its line."""
    tree = copy.deepcopy(tree)
    node = list(ast.walk(tree))[number]
    match node, kind:
        case ast.Compare(), _:
            node.ops[0] = _TURNED[type(node.ops[0])]()
        case ast.If() | ast.IfExp() | ast.While(), _:
            node.test = ast.UnaryOp(ast.Not(), node.test)
        case ast.Constant(value=bool(value)), _:
            node.value = not value
        case ast.Constant(value=int(value)), _:
            node.value = value + 1
        case ast.Return(), _:
            node.value = ast.Constant(None)
        case ast.FunctionDef() | ast.AsyncFunctionDef(), _:
            node.body.insert(0, ast.Return(ast.Constant(None)))
        case _:
            for parent in ast.walk(tree):
                for body in (
                    getattr(parent, name, None) for name in ("body", "orelse", "finalbody")
                ):
                    if isinstance(body, list) and node in body:
                        body[body.index(node)] = ast.Pass()
    return ast.unparse(ast.fix_missing_locations(tree)), getattr(node, "lineno", 0)


def killed(tree: Path, tests: list[str], limit: float) -> bool:
    """Whether the tests fail in the tree."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        *tests,
    ]
    env = {
        **os.environ,
        "PYTHONPATH": str(tree),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
    }
    run = subprocess.Popen(
        command,
        cwd=tree,
        env=env,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        return run.wait(limit) != 0
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
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
    files = sorted(
        file
        for name in options.modules
        for file in ([_ROOT / name] if name.endswith(".py") else (_ROOT / name).rglob("*.py"))
    )
    trees = {file: ast.parse(file.read_text()) for file in files}
    every = [(file, *place) for file in files for place in places(trees[file])]
    sample = random.Random(options.seed).sample(every, min(options.count, len(every)))
    only = [int(number) for number in options.only.split(",") if number]
    dead = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        left_out = shutil.ignore_patterns(".*", "build", "dist", "node_modules", "site")
        shutil.copytree(_ROOT, tree, ignore=left_out)
        if killed(tree, tests, options.limit):
            raise SystemExit("the tests fail without a mutant, or take longer than the limit")
        for number, (file, place, kind) in enumerate(sample):
            if only and number not in only:
                continue
            source, line = mutated(trees[file], place, kind)
            at = tree / file.relative_to(_ROOT)
            at.write_text(source)
            end = killed(tree, tests, options.limit)
            shutil.copy2(file, at)
            dead += end
            print(
                f"{number} {'killed' if end else 'alive '} {file.relative_to(_ROOT)}:{line} {kind}",
                flush=True,
            )
    print(f"killed {dead} of {len(only) or len(sample)}")


if __name__ == "__main__":
    main()
