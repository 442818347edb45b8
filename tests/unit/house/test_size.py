"""Each package has a budget of lines, ``[tool.size]`` in ``pyproject.toml``, and so have the tests.

A budget is raised by a decision only. Who makes a package smaller lowers its budget in the same change:
to the lines that are left, rounded up to the next 50.
"""

from __future__ import annotations

import tomllib

from tests.support.source_tree import PACKAGE, ROOT, files, text_of

SLACK = 400
"""A budget may stay that many lines above what there is."""
BUDGETS: dict[str, int] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["size"]


def sizes() -> dict[str, int]:
    """Lines of Python of each package, of modules beside them (``agentsup``), and of ``tests``."""
    found = dict.fromkeys(BUDGETS, 0)
    for path in files("agentsup", "tests"):
        parts = path.relative_to(PACKAGE if path.is_relative_to(PACKAGE) else ROOT).parts
        name = parts[0] if len(parts) > 1 else "agentsup"
        found[name] = found.get(name, 0) + len(text_of(path).splitlines())
    return found


def table(lines: dict[str, int]) -> str:
    """Lines and budgets, and the product's sum: without the fakes and the tests."""
    rows = [f"{name:<12} {lines[name]:>7} of {BUDGETS.get(name, 0):>7}" for name in sorted(lines)]
    product = [name for name in lines if name not in {"fakes", "tests"}]
    whole = sum(lines[name] for name in product), sum(BUDGETS.get(name, 0) for name in product)
    return "\n".join(["", *rows, f"{'product':<12} {whole[0]:>7} of {whole[1]:>7}"])


def test_packages_are_within_their_budgets() -> None:
    lines = sizes()
    above = {name for name, count in lines.items() if count > BUDGETS.get(name, 0)}
    assert not above, f"make these smaller: {sorted(above)}{table(lines)}"


def test_budgets_follow_what_became_smaller() -> None:
    lines = sizes()
    loose = {
        name: -(-lines[name] // 50) * 50
        for name in lines
        if BUDGETS.get(name, 0) - lines[name] > SLACK
    }
    assert not loose, f"lower these budgets in pyproject.toml: {loose}{table(lines)}"
