"""The house rules that no linter knows: sizes, names, and that unit tests stay in their ring."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.hostile_clients import CLIENTS, DOORS
from tests.support.source_tree import PACKAGE, ROOT, files, modules, nodes_of, shown, text_of

# The rule is "about 400 and about 70 lines"; the gate leaves a tenth.
MAX_MODULE_LINES = 440
MAX_FUNCTION_LINES = 77
# Longer than the rule allows, with the reason. Keep it short.
LONG_MODULES: dict[str, str] = {
    "agentsup/tasks/hub.py": "one facade of all that is done with tasks",
    "agentsup/api/http/web_sessions.py": "values, codes and sessions share their transactions",
    "agentsup/agents/turn/engine_host.py": "becomes shorter with one context for tools",
    "agentsup/agents/turn/recovery.py": "becomes shorter with services that are never missing",
}
LONG_FUNCTIONS: dict[str, str] = {
    "agentsup/agents/turn/run.py:_run_segment": "one loop over what an engine tells",
}
NAMES_THAT_SAY_NOTHING = {"utils", "util", "helpers", "helper", "common", "misc", "manager"}
# Files that agents can reach are looked at in a `kit/pool.py`, texts of others gone through by
# `kit/compute.py`; never in the threads that all share, which these may use:
SHARED_THREADS: dict[str, str] = {
    "agents/mcp/server.py": "a library is imported, secrets are read in a time limit",
    "agents/workspace/processes.py": "processes, by /proc",
    "api/routes/agents.py": "a link of ours is drawn",
    "api/routes/system.py": "our own API is described",
    "api/web/login.py": "a link of ours is drawn",
    "api/web/static.py": "the page, as shipped",
    "api/web/views.py": "the end of the daemon's log, for an operator",
    "channels/matrix/login.py": "a bot's session, beside what its agent can write",
    "agents/tools/web/fetch.py": "a library is imported",
    "channels/telegram/client.py": "a library is imported",
    "observe/metrics.py": "a library is imported",
    "daemon/main.py": "the operator's token and copies of the config, in the home",
    "daemon/runtime/housekeeping.py": "the lock of the home",
    "daemon/assembly/metrics.py": "the probe of these threads",
    "daemon/runtime/recorder.py": "daemon.json of the home",
    "daemon/assembly/traces.py": "secrets are read in a time limit",
    "daemon/runtime/transports.py": "a library is imported, secrets are read in a time limit",
    "engines/acp/engine.py": "a library is imported, a sign-in of the daemon's user looked for",
    "engines/process/launcher.py": "memory of groups, by /proc",
    "daemon/runtime/engines.py": "engines are looked for on the PATH",
    "engines/llm/engine.py": "a library is imported, certificates of the system are loaded",
    "engines/llm/servers.py": "a library is imported",
    "engines/prices.py": "a table is looked up, as shipped",
    "engines/providers/client.py": "a library is imported",
    "kit/outbound/tls.py": "certificates of the system are loaded",
    "kit/process_tracker.py": "processes, by /proc",
    "kit/reaper.py": "processes, by /proc",
    "observe/traces/otel.py": "a library is imported",
    "store/database.py": "the record of the store's state, in the home",
    "store/runner.py": "a connection of its own, for backup and checks",
}
CONFIG: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


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
        if (lines := len(text_of(path).splitlines())) > MAX_MODULE_LINES
        and shown(path) not in LONG_MODULES
    }
    assert not long, f"split these by concept (at most {MAX_MODULE_LINES} lines): {long}"


def test_functions_are_short() -> None:
    long = {
        f"{shown(path)}:{node.lineno} {node.name}": lines
        for path in modules()
        for node in nodes_of(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > MAX_FUNCTION_LINES
        and f"{shown(path)}:{node.name}" not in LONG_FUNCTIONS
    }
    assert not long, f"split these (at most {MAX_FUNCTION_LINES} lines): {long}"


def test_there_is_one_way_to_log() -> None:
    """``kit.log``; the linter does not look for others where it allows what else has one door."""
    own = {"agentsup/kit/log.py", "agentsup/observe/logging.py"}
    other = re.compile(
        r"getLogger|^\s*(import|from) structlog|logging\.(debug|info|warning|error)\(", re.MULTILINE
    )
    found = [
        shown(path)
        for path in modules()
        if shown(path) not in own and other.search(path.read_text(encoding="utf-8"))
    ]
    assert not found, f"use kit.log.get_logger: {found}"


def test_names_say_something() -> None:
    vague = [shown(p) for p in PACKAGE.rglob("*") if p.stem in NAMES_THAT_SAY_NOTHING]
    assert not vague, f"name these for what they hold: {vague}"


def test_every_folder_of_code_is_a_package() -> None:
    """The import contracts do not see a folder without __init__.py, so nothing in it is checked."""
    missing = {shown(p.parent) for p in modules() if not (p.parent / "__init__.py").exists()}
    assert not missing, f"add an __init__.py with a docstring to: {sorted(missing)}"


def test_only_packages_list_what_they_export() -> None:
    """An underscore says what is private to a module; a name is imported from where it is defined."""
    listed = [
        shown(path)
        for path in files("agentsup", "tests", "benchmarks")
        if path.name != "__init__.py" and re.search(r"^__all__\b", text_of(path), re.MULTILINE)
    ]
    assert not listed, f"take __all__ out of: {listed}"


def test_code_in_docstrings_stands_between_double_backticks() -> None:
    """In ``agentsup/api`` they are Markdown, which the OpenAPI document shows to people."""
    single = re.compile(r"(?<!`)`[^`\n]+`(?!`)")
    found = [
        f"{shown(path)}:{node.lineno}"
        for path in files("agentsup", "tests", "benchmarks")
        if PACKAGE / "api" not in path.parents
        if single.search(text_of(path))
        for node in nodes_of(path)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node.value.value, str) and single.search(node.value.value)
    ]
    assert not found, f"double the backticks of: {found}"


def test_a_broad_except_says_why() -> None:
    """Outside the test kit a broad ``except`` stands at a supervision boundary and says so."""
    silent = []
    for path in modules():
        lines = text_of(path).splitlines()
        for number, line in enumerate(lines, 1):
            near = "\n".join(lines[max(0, number - 3) : number + 2])
            if "noqa: BLE001" in line and "supervision boundary:" not in near:
                silent.append(f"{shown(path)}:{number}")
    silent = [place for place in silent if not place.startswith("agentsup/fakes/")]
    assert not silent, f"add '# supervision boundary: why' to: {silent}"


def test_what_others_choose_takes_no_thread_that_all_share() -> None:
    users = {
        shown(path).removeprefix("agentsup/")
        for path in modules()
        if path.relative_to(PACKAGE).parts[0] not in ("cli", "fakes")
        if re.search(r"\bto_thread\(|run_in_executor\(None", text_of(path))
    }
    assert users <= SHARED_THREADS.keys(), "use kit/pool.py or kit/compute.py, or say why not"
    assert users == SHARED_THREADS.keys(), "these use none any more"


def imported(path: Path) -> Iterator[str]:
    """Names of agentsup's packages that the file imports anywhere."""
    for node in nodes_of(path):
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
                if package != "fakes" and height.get(package, 0) > height[folder.name]
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
    """Whoever opens the door to HTTP that goes out is in the table of ``hostile_clients``."""
    opening = re.compile(r"^from agentsup\.kit\.outbound\.\w+_client import", re.MULTILINE)
    lazily = re.compile(r"import_module\(\"agentsup\.kit\.outbound\.\w+_client\"\)")
    found = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in modules()
        if PACKAGE / "fakes" not in path.parents
        if opening.search(text := text_of(path)) or lazily.search(text)
    }
    assert found == set(DOORS), "the table in tests/support/hostile_clients.py is another"
    assert {client for clients in DOORS.values() for client in clients} == set(CLIENTS)
