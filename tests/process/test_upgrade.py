"""An upgrade of an installed wheel: forwards, and back when the new version does not work."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from agentsup import __version__
from tests.support.ports import free_port
from tests.support.source_tree import PACKAGE, ROOT

pytestmark = [pytest.mark.process, pytest.mark.timeout(480)]

NEXT, LATER = "99.1.0", "99.2.0"
NO_STATUS = """
_real = read_quickly
def read_quickly(line):
    if "status" in line:
        raise RuntimeError("no status")
    return _real(line)
"""
NEWS = "# Changelog\n\n## [99.1.0] - soon\n\n- Sings.\n\n## [{0}] - before\n\n- Old.\n"


def wheel(folder: Path, version: str, changed: Mapping[str, str | None]) -> Path:
    """A wheel of this package, with that version and other contents of some files."""
    folder.mkdir(exist_ok=True)
    path = folder / f"agentsup-{version}-py3-none-any.whl"
    info = f"agentsup-{version}.dist-info"
    texts = {
        "agentsup/__init__.py": f'__version__ = "{version}"\n',
        "agentsup/CHANGELOG.md": NEWS.format(__version__),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: agentsup\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\nagentsup = agentsup.cli.main:main\n",
        **{f"agentsup/{name}": text for name, text in changed.items()},
    }
    with zipfile.ZipFile(path, "w") as file:
        for each in PACKAGE.rglob("*"):
            name = str(each.relative_to(ROOT))
            if each.is_file() and "__pycache__" not in each.parts and name not in texts:
                file.write(each, name)
        for name, text in texts.items():
            if text is not None:
                file.writestr(name, text)
        file.writestr(f"{info}/RECORD", "".join(f"{each},,\n" for each in file.namelist()))
    return path


def environment(folder: Path, first: Path) -> Path:
    """A venv with that wheel, and with our own libraries; its interpreter."""
    venv.create(folder, with_pip=True, symlinks=True)
    (site,) = (folder / "lib").glob("python*/site-packages")
    libraries = Path(sysconfig.get_paths()["purelib"])
    theirs = folder / "libraries"
    theirs.mkdir()
    for each in libraries.iterdir():
        if not each.name.startswith(("agentsup", "_agentsup", "__editable__", "pip", "setuptools")):
            (theirs / each.name).symlink_to(each)
    (site / "libraries.pth").write_text(f"{theirs}\n")
    python = folder / "bin" / "python"
    line = [str(python), "-m", "pip", "install", "--no-deps", "--no-index", str(first)]
    subprocess.run(line, check=True, capture_output=True, timeout=60)
    return python


def run(python: Path, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("AGENTSUP_", "PYTHON"))}
    env = {**kept, "PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1"}
    line = [str(python), "-m", "agentsup", "--home", str(home), *words]
    return subprocess.run(
        line,
        cwd=home.parent,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def good(python: Path, home: Path, *words: str) -> str:
    done = run(python, home, *words)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def schema(python: Path, home: Path) -> str:
    code = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]);"
        "print(c.execute('SELECT max(version) FROM schema_version').fetchone()[0])"
    )
    line = [str(python), "-c", code, str(home / "state.db")]
    return subprocess.run(line, check=True, capture_output=True, text=True, timeout=30).stdout


@pytest.mark.skipif(sys.platform != "linux", reason="of Linux")
def test_an_upgrade_goes_forwards_and_back_again_when_the_new_one_does_not_work(
    tmp_path: Path,
) -> None:
    home, wheels = tmp_path / "home", tmp_path / "wheels"
    python = environment(tmp_path / "venv", wheel(wheels, __version__, {}))
    other = good(python, home, "upgrade", "--wheel", str(wheel(wheels, NEXT, {})), "--check")
    assert "- Sings." in other
    assert "- Old." not in other
    left = python.parents[1].with_name(".venv.before-upgrade")
    left.mkdir()
    cut = run(python, home, "upgrade", "--wheel", str(wheel(wheels, NEXT, {})), "--yes")
    assert (cut.returncode, str(left) in cut.stderr) == (1, True)
    left.rmdir()
    good(python, home, "up", "--no-chat", "--port", str(free_port()))
    try:
        good(python, home, "send", "main", "hello")
        unasked = run(
            python, home, "upgrade", "--wheel", str(wheels / f"agentsup-{NEXT}-py3-none-any.whl")
        )
        assert (unasked.returncode, "Nothing was changed" in unasked.stderr) == (1, True)

        said = good(
            python,
            home,
            "upgrade",
            "--wheel",
            str(wheels / f"agentsup-{NEXT}-py3-none-any.whl"),
            "--yes",
        )
        assert "- Sings." in said
        assert good(python, home, "version") == f"agentsup {NEXT}\n"
        assert NEXT in good(python, home, "status")
        assert "hello" in good(python, home, "messages", "list")
        assert len(list((home / "backups").glob("before-upgrade-*.tar.gz"))) == 1

        number = len(list((PACKAGE / "store" / "migrations").glob("*.sql"))) + 1
        changed = {
            f"store/migrations/{number:04}_later.sql": "CREATE TABLE later (x INTEGER) STRICT;\n",
            "cli/output/reads.py": "raise RuntimeError('this version is broken')\n",
        }
        before = schema(python, home)
        failed = run(
            python, home, "upgrade", "--wheel", str(wheel(wheels, LATER, changed)), "--yes"
        )
        assert failed.returncode == 1
        assert f"{NEXT} is back" in failed.stderr
        assert "this version is broken" in failed.stderr
        assert good(python, home, "version") == f"agentsup {NEXT}\n"

        # The next one breaks only after it has changed the store.
        reads = (PACKAGE / "cli" / "output" / "reads.py").read_text()
        changed = {
            f"store/migrations/{number:04}_later.sql": "CREATE TABLE later (x INTEGER) STRICT;\n",
            "cli/output/reads.py": f"{reads}\n{NO_STATUS}",
        }
        failed = run(
            python, home, "upgrade", "--wheel", str(wheel(wheels, LATER, changed)), "--yes"
        )
        assert failed.returncode == 1
        assert "which is put back from" in failed.stdout
        assert "is back" in failed.stderr
        assert schema(python, home) == before
        assert NEXT in good(python, home, "status")
        assert "hello" in good(python, home, "messages", "list")
        assert len(list((home / "backups").glob("aside-*/state.db"))) == 1
        assert [each.name for each in tmp_path.iterdir() if "upgrade" in each.name] == []

        removed = good(
            python, home, "uninstall", "--home-too", "--backup", str(tmp_path / "b.tar.gz"), "--yes"
        )
        assert f"{home} with all that is in it" in removed
        assert "pip uninstall agentsup" in removed
        assert not home.exists()
        good(python, home, "restore", str(tmp_path / "b.tar.gz"))
        good(python, home, "up", "--no-chat", "--port", str(free_port()))
        assert "hello" in good(python, home, "messages", "list")
    finally:
        run(python, home, "stop")


def test_uninstall_says_what_it_removes_and_removes_nothing_else(tmp_path: Path) -> None:
    python, home = Path(sys.executable), tmp_path / "home"
    good(python, home, "init")
    (tmp_path / "mine").write_text("stays")
    (home / "link").symlink_to(tmp_path / "mine")
    refused = run(python, home, "uninstall", "--home-too")
    assert (refused.returncode, "Nothing was changed" in refused.stderr) == (1, True)
    stays = good(python, home, "uninstall", "--yes")
    assert "nothing: there is no service and no running daemon" in stays
    assert f"The home {home} stays." in stays
    assert home.exists()
    inside = run(
        python, home, "uninstall", "--home-too", "--backup", str(home / "b.tar.gz"), "--yes"
    )
    assert (inside.returncode, "lies in the home" in inside.stderr) == (1, True)
    no_home = run(python, tmp_path, "uninstall", "--home-too", "--yes")
    assert (no_home.returncode, "is not removed" in no_home.stderr) == (1, True)
    good(python, home, "uninstall", "--home-too", "--yes")
    assert not home.exists()
    assert (tmp_path / "mine").read_text() == "stays"
    (archive,) = tmp_path.glob("home-*.tar.gz")
    good(python, home, "restore", str(archive))
    assert (home / "agents.json").exists()


def test_a_checkout_says_how_it_is_upgraded(tmp_path: Path) -> None:
    said = good(Path(sys.executable), tmp_path / "home", "upgrade")
    assert "a checkout" in said
    assert "git -C" in said
