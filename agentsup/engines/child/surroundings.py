"""Where a program runs and what it may know: environment, private home, the file to execute."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from agentsup.engines.failures import NotInstalled, Permanent
from agentsup.model.engine import EngineSpec

_XDG = {
    "XDG_CONFIG_HOME": ".config",
    "XDG_DATA_HOME": ".local/share",
    "XDG_STATE_HOME": ".local/state",
    "XDG_CACHE_HOME": ".cache",
}


def private_home(spec: EngineSpec) -> Path:
    """The home of this agent's programs: beside its workspace, so that no file tool reaches it."""
    return Path(spec.workspace).parent / "engine-home"


def surroundings_of(
    spec: EngineSpec, extra: Mapping[str, str], *, is_home_private: bool = True
) -> dict[str, str]:
    """The environment of a program: ``spec.env``, the private home, and ``extra`` over both."""
    env = dict(spec.env)
    if is_home_private:
        home = private_home(spec)
        env["HOME"] = str(home)
        env |= {name: str(home / below) for name, below in _XDG.items()}
    return env | dict(extra)


def make_home(spec: EngineSpec) -> Path:
    """Create the private home, for nobody else to read; blocks."""
    home = private_home(spec)
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    return home


def find_program(name: str, env: Mapping[str, str], *, cwd: str, remedy: str = "") -> str:
    """The file to execute for ``name``, looked for in the program's own PATH; blocks briefly.

    A name with a slash is relative to ``cwd``. Raises ``NotInstalled`` with ``remedy``.
    """
    name = os.path.expanduser(name)  # noqa: PTH111 - a path part of an argument list
    if os.sep in name:
        path = os.path.join(cwd, name)  # noqa: PTH118 - keeps an absolute name as it is
        found = path if os.path.isfile(path) and os.access(path, os.X_OK) else None  # noqa: PTH113
    else:
        found = shutil.which(name, path=env.get("PATH", os.defpath))
    if found is None:
        hint = f": {remedy}" if remedy else "; install it, or name its full path in engine_options"
        raise NotInstalled(f"the program {name} is not found{hint}", program=name)
    return found


def contained(workspace: str, path: str) -> Path:
    """``path`` in the workspace, following links. Raises ``Permanent`` where it leads out."""
    root = Path(os.path.realpath(workspace))
    try:
        target = Path(os.path.realpath(root / path))
    except ValueError:
        target = root
    if target == root or not target.is_relative_to(root):
        raise Permanent(f"{path!r} is not a file inside the workspace")
    return target
