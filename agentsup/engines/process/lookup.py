"""Looks up the file of a program to execute, and files of its workspace."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from agentsup.engines.failures import NotInstalled, Permanent
from agentsup.kit import searching


def find_program(name: str, env: Mapping[str, str], *, cwd: str, remedy: str = "") -> str:
    """Return the file to execute for ``name``, found in the program's own PATH; blocks briefly.

    A name with a slash is relative to ``cwd``. Raises ``NotInstalled`` with ``remedy``.
    """
    name = os.path.expanduser(name)  # noqa: PTH111 - a path part of an argument list
    if os.sep in name:
        path = os.path.join(cwd, name)  # noqa: PTH118 - keeps an absolute name as it is
        found = path if os.path.isfile(path) and os.access(path, os.X_OK) else None  # noqa: PTH113
    else:
        found = shutil.which(name, path=env.get("PATH", os.defpath))
    if found is None:
        advice = remedy or "install it, or name its full path in engine_options"
        raise NotInstalled(searching.not_found(name, env, advice), program=name)
    return found


def contained(workspace: str, path: str) -> Path:
    """Return ``path`` in the workspace, links resolved. Raises ``Permanent`` if it leads out."""
    root = Path(os.path.realpath(workspace))
    try:
        target = Path(os.path.realpath(root / path))
    except ValueError:
        target = root
    if not workspace or target == root or not target.is_relative_to(root):
        raise Permanent(f"{path!r} is not a file inside the workspace")
    return target
