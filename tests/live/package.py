"""Wheel and sdist as they are handed out, a fresh clone, and a wheel that is installed outside of it.

The sdist has what a clone has, so ``make run`` is tried in an unpacked one. It installs what running
needs from the index, once; the environment with the wheel uses the same packages.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.ports import free_port
from tests.support.source_tree import ROOT

INSTALL_S: Final = 240.0
"""How long an index may take for a hundred packages."""
COMMAND_S: Final = 60.0


def environment(**more: str) -> dict[str, str]:
    """This one without what would name a daemon, or tell ``make`` about the ``make`` above us."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AGENTSUP_", "MAKE", "MFLAGS", "VIRTUAL_ENV"))
        if not name.endswith(("_API_KEY", "_BASE_URL"))
    }
    return {**kept, **more}


def ran(line: list[str], *, cwd: Path, timeout_s: float = COMMAND_S, **env: str) -> str:
    """The output of a command that succeeds; what it said otherwise is in the error."""
    done = subprocess.run(
        line,
        cwd=cwd,
        env=environment(**env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, (line, done.returncode, done.stdout[-3000:])
    return done.stdout


@dataclass(frozen=True, slots=True)
class Archives:
    """What ``scripts/dist.sh`` made."""

    wheel: Path
    sdist: Path


def build(source: Path, into: Path, *, umask: int = 0o022, **env: str) -> Archives:
    """Build in ``source`` by its own script."""
    line = ["sh", "-c", 'umask "$1"; exec sh scripts/dist.sh "$2"', "sh", f"{umask:o}", str(into)]
    ran(line, cwd=source, timeout_s=COMMAND_S, PYTHON=sys.executable, **env)
    (wheel,) = into.glob("*.whl")
    (sdist,) = into.glob("*.tar.gz")
    return Archives(wheel, sdist)


def built(into: Path) -> Archives:
    """Wheel and sdist of this repository."""
    return build(ROOT, into)


def unpacked(sdist: Path, into: Path) -> Path:
    """The folder that an sdist unpacks to."""
    with tarfile.open(sdist) as archive:
        archive.extractall(into, filter="data")
    (folder,) = into.iterdir()
    return folder


@dataclass(frozen=True, slots=True)
class Clone:
    """A fresh clone after ``make run``, whose daemon has been stopped."""

    folder: Path
    said: str

    @property
    def python(self) -> Path:
        return self.folder / ".venv" / "bin" / "python"

    @property
    def packages(self) -> str:
        """Where its packages are."""
        line = [str(self.python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
        return ran(line, cwd=self.folder).strip()


def run_fresh(folder: Path) -> Clone:
    """What the README says first, in ``folder``: ``make run``, here without a terminal."""
    port = {"AGENTSUP_API__PORT": str(free_port())}
    said = ran(["make", "run"], cwd=folder, timeout_s=INSTALL_S, **port)
    clone = Clone(folder, said)
    command = [str(folder / ".venv" / "bin" / "agentsup"), "--home", str(folder / ".home")]
    ran([*command, "send", "main", "hello"], cwd=folder)
    ran([*command, "stop"], cwd=folder)
    return clone


def installed(wheel: Path, clone: Clone, into: Path) -> Path:
    """The folder with the programs of a new environment that has the wheel."""
    ran([str(clone.python), "-m", "venv", "--without-pip", str(into)], cwd=clone.folder)
    python = into / "bin" / "python"
    line = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    own = Path(ran(line, cwd=into).strip())
    # A line of a path makes its packages importable, and follows none of its own .pth files: the
    # checkout that is installed there stays unseen.
    (own / "wheelhouse.pth").write_text(f"{clone.packages}\n")
    pip = [str(clone.python), "-m", "pip", "--python", str(python), "--quiet"]
    ran([*pip, "install", "--no-deps", "--no-index", str(wheel)], cwd=into)
    return into / "bin"
