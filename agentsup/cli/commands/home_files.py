"""The files of a new home, from the templates of the package."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from agentsup.cli.connect.failure import CommandFailed
from agentsup.config import Home
from agentsup.kit.files import write_atomic

TEMPLATES: Final = Path(__file__).with_name("templates")
DEMO_RULES: Final = "demo-rules.yaml"
SCHEMAS: Final = ("agents.schema.json", "config.schema.json")
_SHIPPED: Final = Path(__file__).parents[2] / "config"


def create_home(home: Home) -> list[Path]:
    """Make the missing files of ``home``; returns the files made. Raises ``CommandFailed``.

    Only the JSON Schemas beside them, which are generated, are overwritten.
    """
    paths = (home.config_toml, home.agents_json, home.shared_memory, home.root / DEMO_RULES)
    files = {path: (TEMPLATES / path.name).read_bytes() for path in paths}
    return write_home(
        home, files, {home.root / name: (_SHIPPED / name).read_bytes() for name in SCHEMAS}
    )


def write_home(
    home: Home, missing: Mapping[Path, bytes], generated: Mapping[Path, bytes]
) -> list[Path]:
    """Make those files of ``home`` that are ``missing``, and overwrite those that are ``generated``
    and differ; returns the missing ones that were made. Raises ``CommandFailed``."""
    made: list[Path] = []
    try:
        home.create()
        for path, content in missing.items():
            if not path.exists() and not path.is_symlink():
                write_atomic(path, content)
                made.append(path)
        for path, content in generated.items():
            if not path.exists() or path.read_bytes() != content:
                write_atomic(path, content)
    except OSError as error:
        where = error.filename or home.root
        raise CommandFailed(f"the home can't be made: {where}: {error.strerror or error}") from None
    return made
