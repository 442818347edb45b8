"""The house rules that no linter knows: sizes, names, and that unit tests stay in their ring."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentsup.testing.hostile_clients import CLIENTS, DOORS

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "agentsup"
# The rule is "about 400 and about 70 lines"; the gate leaves a tenth.
MAX_MODULE_LINES = 440
MAX_FUNCTION_LINES = 77
# Longer than the rule allows, with the reason. Keep it short.
LONG_MODULES: dict[str, str] = {}
LONG_FUNCTIONS: dict[str, str] = {}
NAMES_THAT_SAY_NOTHING = {"utils", "util", "helpers", "helper", "common", "misc", "manager"}
# Agents can write below their folders: whoever opens there goes through `kit/planted.py`.
NEAR_AGENTS = ("agents", "api", "channels", "daemon", "engines", "tasks", "teams")
OPENING = frozenset(
    [
        "chmod",
        "glob",
        "hardlink_to",
        "iterdir",
        "mkdir",
        "read_bytes",
        "read_text",
        "rglob",
        "rmdir",
        "symlink_to",
        "unlink",
        "write_bytes",
        "write_text",
    ]
)
OPENING_OF_OS = frozenset(
    [
        "chmod",
        "link",
        "listdir",
        "makedirs",
        "mkdir",
        "open",
        "remove",
        "removedirs",
        "rename",
        "renames",
        "replace",
        "rmdir",
        "scandir",
        "symlink",
        "truncate",
        "unlink",
        "walk",
    ]
)
MODES = frozenset(["r", "rb", "w", "wb", "a", "ab", "x", "xb", "r+", "rb+"])
OPENING_OF_SHUTIL = frozenset(["copy", "copy2", "copyfile", "copytree", "move", "rmtree"])
# What these open lies where no agent writes, or is reached through a descriptor of the door.
OPENING_ELSEWHERE: dict[str, str] = {
    "agents/roles/book.py": "roles of the home and those shipped, in the pool for config",
    "api/web/static.py": "the page, as shipped",
    "api/web/views.py": "the daemon's log",
    "channels/matrix/login.py": "a bot's session, beside what its agent can write",
    "channels/received.py": "relative to a descriptor of the door",
    "daemon/main.py": "daemon.json of the home",
    "daemon/modes.py": "modes of the home, by O_PATH and scandir, which wait for nothing",
    "daemon/reconcile.py": "copies of the config, in the home",
    "daemon/recorder.py": "daemon.json of the home",
    "daemon/tokens.py": "the operator's token, in the home",
    "engines/child/homes.py": "a home of before is renamed, the agent's own folder listed",
    "tasks/zones.py": "names of time zones, as shipped",
}
# Files that agents can reach are looked at in a `kit/pool.py`, never in the threads that all share.
SHARED_THREADS: dict[str, str] = {
    "agents/mcp/server.py": "a library is imported, secrets are read in a time limit",
    "agents/mcp/wire.py": "a line is parsed",
    "agents/pipeline/results.py": "a text is looked through",
    "agents/pipeline/stages.py": "a text is looked through",
    "agents/processes.py": "processes, by /proc",
    "engines/acp/engine.py": "a library is imported, a sign-in of the daemon's user looked for",
    "engines/child/child.py": "a line is looked through",
    "engines/child/children.py": "memory of groups, by /proc",
    "engines/llm/engine.py": "a library is imported",
    "engines/prices.py": "a table is looked up, as shipped",
}
CONFIG: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


def rings() -> dict[str, int]:
    """Package to height, from the import contract: one list for the linter and for this test."""
    contract = next(c for c in CONFIG["tool"]["importlinter"]["contracts"] if c["id"] == "rings")
    return {
        name.strip(" ()"): height
        for height, row in enumerate(reversed(contract["layers"]))
        for name in row.split("|")
    }


def test_modules_are_short() -> None:
    long = {
        shown(path): lines
        for path in modules()
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > MAX_MODULE_LINES
        and shown(path) not in LONG_MODULES
    }
    assert not long, f"split these by concept (at most {MAX_MODULE_LINES} lines): {long}"


def test_functions_are_short() -> None:
    long = {
        f"{shown(path)}:{node.lineno} {node.name}": lines
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > MAX_FUNCTION_LINES
        and f"{shown(path)}:{node.name}" not in LONG_FUNCTIONS
    }
    assert not long, f"split these (at most {MAX_FUNCTION_LINES} lines): {long}"


def test_names_say_something() -> None:
    vague = [shown(p) for p in PACKAGE.rglob("*") if p.stem in NAMES_THAT_SAY_NOTHING]
    assert not vague, f"name these for what they hold: {vague}"


def test_every_folder_of_code_is_a_package() -> None:
    """The import contracts do not see a folder without __init__.py, so nothing in it is checked."""
    missing = {shown(p.parent) for p in modules() if not (p.parent / "__init__.py").exists()}
    assert not missing, f"add an __init__.py with a docstring to: {sorted(missing)}"


def test_a_broad_except_says_why() -> None:
    """Outside the test kit a broad `except` stands at a supervision boundary and says so."""
    silent = []
    for path in modules():
        lines = path.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, 1):
            near = "\n".join(lines[max(0, number - 3) : number + 2])
            if "noqa: BLE001" in line and "supervision boundary:" not in near:
                silent.append(f"{shown(path)}:{number}")
    silent = [place for place in silent if not place.startswith("agentsup/testing/")]
    assert not silent, f"add '# supervision boundary: why' to: {silent}"


def opening(path: Path) -> Iterator[str]:
    """Where a module opens, lists, makes or removes files without the door."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        found = ""
        if isinstance(node, ast.Attribute):
            of = node.value.id if isinstance(node.value, ast.Name) else ""
            known = {"os": OPENING_OF_OS, "shutil": OPENING_OF_SHUTIL}.get(of, OPENING)
            found = node.attr if node.attr in known else ""
        elif isinstance(node, ast.Name):
            found = node.id if node.id in ("open", "write_atomic") else ""
        elif isinstance(node, ast.Call):
            called, first = node.func, node.args[0] if node.args else None
            if isinstance(called, ast.Attribute) and called.attr == "open":
                is_mode = isinstance(first, ast.Constant) and first.value in MODES
                found = "open" if is_mode else ""
        if found:
            yield f"{shown(path)}:{getattr(node, 'lineno', 0)} {found}"


def test_what_agents_can_write_has_one_door() -> None:
    found = [
        place
        for path in modules()
        if path.relative_to(PACKAGE).parts[0] in NEAR_AGENTS
        if shown(path).removeprefix("agentsup/") not in OPENING_ELSEWHERE
        for place in opening(path)
    ]
    assert not found, f"use kit/planted.py, in a pool; or say why not: {found}"


def test_files_of_agents_take_no_thread_that_all_share() -> None:
    users = {
        shown(path).removeprefix("agentsup/")
        for path in modules()
        if path.relative_to(PACKAGE).parts[0] in ("agents", "engines", "tasks", "teams")
        if re.search(r"\bto_thread\(|run_in_executor\(None", path.read_text(encoding="utf-8"))
    }
    assert users <= SHARED_THREADS.keys(), "use a pool, or say why not"
    assert users == SHARED_THREADS.keys(), "these use none any more"


def test_the_exceptions_from_the_door_are_needed() -> None:
    stale = [name for name in OPENING_ELSEWHERE if not any(opening(PACKAGE / name))]
    assert not stale, f"these open nothing any more: {stale}"


@pytest.mark.parametrize(
    "text",
    [
        "open(p)",
        "p.open('rb')",
        "os.open(p, 0)",
        "f(p.mkdir)",
        "p.read_bytes()",
        "shutil.rmtree(p)",
        "write_atomic(p, b'')",
        "os.scandir(p)",
        "p.unlink(missing_ok=True)",
    ],
)
def test_ways_round_the_door_are_seen(tmp_path: Path, text: str) -> None:
    (tmp_path / "module.py").write_text(text)
    assert list(opening(tmp_path / "module.py"))


def imported(path: Path) -> Iterator[str]:
    """Names of agentsup's packages that the file imports anywhere."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module == "agentsup":
                names = [f"agentsup.{alias.name}" for alias in node.names]
            else:
                names = [node.module]
        for name in names:
            parts = name.split(".")
            if parts[0] == "agentsup" and len(parts) > 1:
                yield parts[1]


def test_unit_tests_import_nothing_above_their_ring() -> None:
    height = rings()
    found = []
    for folder in sorted(p for p in (ROOT / "tests/unit").iterdir() if p.name in height):
        for path in sorted(folder.rglob("*.py")):
            above = {
                package
                for package in imported(path)
                if package != "testing" and height.get(package, 0) > height[folder.name]
            }
            found += [f"{shown(path)} imports {package}" for package in sorted(above)]
    assert not found, f"unit tests of a ring know nothing above it: {found}"


@pytest.mark.parametrize("name", ["runtime", "dev"])
def test_the_lock_is_hashed_and_names_no_index(name: str) -> None:
    text = (ROOT / f"requirements/{name}.txt").read_text(encoding="utf-8")
    assert "://" not in text
    assert not re.search(r"^\s*-", text.replace("    --hash", ""), re.MULTILINE)
    entries = re.split(r"\n(?=\S)", text.strip())
    unhashed = [entry for entry in entries if "--hash=sha256:" not in entry]
    assert not unhashed


def test_the_lock_covers_every_declared_requirement() -> None:
    def bare(requirement: str) -> str:
        return re.split(r"[\[<>=~! ;]", requirement)[0].lower().replace("_", "-")

    project, groups = CONFIG["project"], CONFIG["dependency-groups"]
    optional = [r for extra in project["optional-dependencies"].values() for r in extra]
    runtime = {bare(r) for r in [*project["dependencies"], *optional, *groups["build"]]}
    dev = runtime | {bare(r) for r in groups["dev"]}
    for name, wanted in (("runtime", runtime), ("dev", dev)):
        text = (ROOT / f"requirements/{name}.txt").read_text(encoding="utf-8")
        locked = set(re.findall(r"^([a-z0-9.-]+)==", text, re.MULTILINE))
        assert wanted - locked - {"agentsup"} == set(), "run `make lock`"


def test_every_client_of_other_servers_is_tried_by_hostile_ones() -> None:
    """Whoever opens the door to HTTP that goes out is in the table of `hostile_clients`."""
    opening = re.compile(r"^from agentsup\.kit\.outbound\.\w+_client import", re.MULTILINE)
    lazily = re.compile(r"import_module\(\"agentsup\.kit\.outbound\.\w+_client\"\)")
    found = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in modules()
        if PACKAGE / "testing" not in path.parents
        if opening.search(text := path.read_text(encoding="utf-8")) or lazily.search(text)
    }
    assert found == set(DOORS), "the table in agentsup/testing/hostile_clients.py is another"
    assert {client for clients in DOORS.values() for client in clients} == set(CLIENTS)
