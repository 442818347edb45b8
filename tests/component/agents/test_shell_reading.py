"""What the rules of commands understand, against the shells themselves.

Scripts are thrown together from the pieces that make shells hard to read. Where the rules let one
through, the shells run it, with a `sudo` of ours on the path: it must not have been started.
"""

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from agentsup.agents.tools import shell_policy, shell_reader

PIECES = (
    *("sudo 1", "sudo 1\n", "\nsudo 1\n", "; sudo 1", "echo", "echo a", "cat ", "true", "eval"),
    *(" ", "\n", "\n", "\t", "'", '"', "\\", "\\\n", "`", "\\'", '\\"', "\\`", "\\$", "$'", '$"'),
    *("$(", ")", "(", "${x", "}", "${x:-", "$((", "))", "((", "$[", "$", "$x", "x=", "a[1", "=1"),
    *("<<X", "<<'X'", "<<-X", "<<\\X", "<< X", "\nX\n", "\nX\n", "X\n", "\tX\n", "<<<", "1<<2"),
    *("#", " #", "# ", "case x in x)", ";;", " esac", "{ ", "; }", "if true; then ", "; fi"),
    *(" && ", " || ", " | ", " & ", ";", "!", "[", "]", "<(", ">", "2>", "/dev/null", "&>"),
    *("function f", "f()", "f", "time ", "-p", "for i in 1; do ", "; done", "break", "~", "*"),
    *("?", "-c", "sh", "bash", "echo '", 'echo "', " '", "' ", '" '),
)
SHELLS = [path for path in (shutil.which("bash"), shutil.which("dash")) if path is not None]
SCRIPTS = 12_000
TWISTED = (
    "echo \\\\\nsudo 1",
    "# x \\\nsudo 1",
    "cat <<'X'\nfoo\\\nX\nsudo 1\nX",
    "cat <<X\nX\\\n\nsudo 1\nX",
    "cat <<X\n\tX\n'\nX\nsudo 1\n# '",
    'echo "$(# )\nsudo 1)"',
    '$""sudo 1',
    "echo $((1<<2))\nsudo 1\n2",
    "x='a[$(sudo 1)]'; ((x))",
)
"""What shells run, though a careless reader doesn't see it."""


class Bench:
    """An empty directory, and a path with little on it."""

    def __init__(self, root: Path) -> None:
        (root / "bin").mkdir()
        (root / "work").mkdir()
        self._log, self._root = root / "log", root
        sudo = root / "bin" / "sudo"
        sudo.write_text(f"#!/bin/sh\necho x >> {self._log}\n")
        sudo.chmod(0o755)
        for name in ("cat", "true", "sh", "bash"):
            found = shutil.which(name)
            assert found
            (root / "bin" / name).symlink_to(found)

    def runs_sudo(self, shell: str, script: str) -> bool:
        self._log.unlink(missing_ok=True)
        subprocess.run(
            [shell, "-c", script],
            check=False,
            cwd=self._root / "work",
            env={"PATH": str(self._root / "bin")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=5,
        )
        return self._log.exists()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_no_script_that_passes_starts_what_is_refused(bench: Bench) -> None:
    chance = random.Random(20)
    scripts = ["".join(chance.choices(PIECES, k=chance.randint(2, 12))) for _ in range(SCRIPTS)]
    passed = [
        script
        for script in scripts
        if "sudo" in script and shell_policy.script_problem(script) is None
    ]
    assert len(passed) > 50
    assert [(shell, one) for one in passed for shell in SHELLS if bench.runs_sudo(shell, one)] == []


@pytest.mark.parametrize("script", TWISTED)
def test_what_shells_run_unseen_by_careless_readers_is_seen(bench: Bench, script: str) -> None:
    assert any(bench.runs_sudo(shell, script) for shell in SHELLS)
    assert shell_policy.script_problem(script) is not None


def test_the_bench_sees_what_a_reader_misses(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a reader that splits at blanks and lines, the same scripts do start it."""

    def careless(script: str) -> list[list[str]]:
        return [line.split() for line in script.splitlines() if line.strip()]

    assert shell_reader.commands_of("ls") == careless("ls")
    monkeypatch.setattr(shell_policy, "commands_of", careless)
    missed = [one for one in (*TWISTED, "true;sudo 1") if shell_policy.script_problem(one) is None]
    assert any(bench.runs_sudo(shell, one) for one in missed for shell in SHELLS)
