"""The installation of this agentsup, by the traces of its installer, and the way to upgrade it."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

NAME: Final = "agentsup"
_OF_IMAGE: Final = "bin/entrypoint.sh"
"""A file that only the container image has beside the interpreter."""


@dataclass(frozen=True, slots=True)
class Installation:
    """One way of installing."""

    way: str
    """In words."""
    upgrade: tuple[str, ...]
    """The command that brings the newest version; empty if only a person can do it."""
    advice: str
    """The way to upgrade by hand, if ``upgrade`` is empty."""
    removal: str
    """The way to remove the program."""
    takes_wheel: tuple[str, ...] = ()
    """The command that installs the wheel that is put after it, in place of this version."""


def installation() -> Installation:
    """The installation that runs this code. Reads files, starts nothing."""
    prefix = Path(sys.prefix)
    extras = _extras()
    wanted = f"{NAME}[{','.join(extras)}]" if extras else NAME
    if (source := _source()) is not None:
        return Installation(
            f"a checkout ({source})",
            (),
            f"git -C {source} pull && make -C {source} setup",
            "remove the checkout",
        )
    if (prefix / _OF_IMAGE).exists():
        return Installation(
            "a container",
            (),
            "docker compose pull && docker compose up -d (or build the image anew); the home is a volume",
            "docker compose down",
        )
    if (prefix / "pipx_metadata.json").is_file() and (pipx := shutil.which("pipx")):
        return Installation(
            "pipx", (pipx, "upgrade", NAME), "", f"pipx uninstall {NAME}", _pip() or ()
        )
    if (prefix / "uv-receipt.toml").is_file() and (uv := shutil.which("uv")):
        return Installation(
            "uv tool", (uv, "tool", "upgrade", NAME), "", f"uv tool uninstall {NAME}", _pip() or ()
        )
    if sys.prefix != sys.base_prefix and (pip := _pip()) is not None:
        return Installation(
            f"pip in {prefix}",
            (*pip, wanted),
            "",
            f"{sys.executable} -m pip uninstall {NAME}",
            pip,
        )
    return Installation(
        f"Python at {prefix}",
        (),
        f"upgrade {wanted} with what installed it",
        f"remove {NAME} with what installed it",
    )


def _pip() -> tuple[str, ...] | None:
    """The command that installs into this environment, without what is installed."""
    if _found("pip") is not None:
        return (sys.executable, "-m", "pip", "install", "--upgrade", "--no-input")
    if (uv := shutil.which("uv")) is not None:
        return (uv, "pip", "install", "--python", sys.executable, "--upgrade")
    return None


def _found(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def _source() -> str | None:
    """The folder of a checkout that is used as it is."""
    ours = _found(NAME)
    if ours is None:
        return str(Path(__file__).parents[3])
    try:
        recorded = json.loads(ours.read_text("direct_url.json") or "{}")
    except ValueError:
        return None
    is_editable = isinstance(recorded, dict) and recorded.get("dir_info", {}).get("editable")
    return str(recorded.get("url", "")).removeprefix("file://") if is_editable else None


def _extras() -> list[str]:
    """The optional parts that are installed, so that an upgrade has them too."""
    ours = _found(NAME)
    if ours is None:
        return []
    found = []
    for extra in ours.metadata.get_all("Provides-Extra") or ():
        needs = [
            line.partition(";")[0]
            for line in ours.requires or ()
            if f"extra == '{extra}'" in line.replace('"', "'")
        ]
        if extra != "all" and needs and all(_found(_plain_name(each)) for each in needs):
            found.append(extra)
    return found


def _plain_name(requirement: str) -> str:
    """The name of the distribution that a requirement names."""
    name = ""
    for c in requirement.strip():
        if not (c.isalnum() or c in "-_."):
            break
        name += c
    return name
