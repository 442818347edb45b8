"""Removes a whole home, and nothing that is none."""

from __future__ import annotations

from pathlib import Path

from agentsup.cli.connect.failure import CommandFailed
from agentsup.config import Home
from agentsup.kit.files import HomeLock, HomeLocked
from agentsup.kit.safe_files import GuardedFolder


def problem_of(home: Home) -> str:
    """Why the folder is not to be removed; empty if it is a home."""
    root = home.root
    if not root.is_dir():
        return "there is no such folder"
    real = root.resolve()
    if (
        real == Path.home().resolve()
        or real == Path(real.anchor)
        or Path.cwd().is_relative_to(real)
    ):
        return "it is no folder of its own, or you are in it"
    if not (home.state_db.exists() or home.agents_json.exists()):
        return "it is no home of agentsup"
    return ""


def remove_home(home: Home) -> None:
    """Remove the home and all in it; links are removed, not followed. Raises ``CommandFailed``."""
    folder = GuardedFolder(home.root)
    try:
        with HomeLock(home.lock):
            while found := folder.list("", 1000)[0]:
                for name, _ in found:
                    folder.remove_tree(name, lambda: True)
        if home.root.is_symlink():
            home.root.resolve().rmdir()
            home.root.unlink()
        else:
            home.root.rmdir()
    except HomeLocked as error:
        raise CommandFailed(f"{error}; the home stays") from None
    except OSError as error:
        raise CommandFailed(
            f"{home.root} is not removed as a whole: {error.filename or ''} {error.strerror}"
        ) from None
