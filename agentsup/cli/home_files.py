"""The files of a new home, from the templates of the package."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from agentsup.cli.failure import Failed
from agentsup.config.home import Home
from agentsup.kit.files import write_atomic

TEMPLATES: Final = Path(__file__).with_name("templates")
DEMO_RULES: Final = "demo-rules.yaml"
SCHEMA: Final = "agents.schema.json"
_SHIPPED_SCHEMA: Final = Path(__file__).parents[1] / "config" / SCHEMA


def create_home(home: Home) -> list[Path]:
    """Make what is missing of `home`; returns the files made. Raises `Failed`.

    Nothing is overwritten but the JSON Schema beside agents.json, which is generated.
    """
    files = {
        home.config_toml: TEMPLATES / "config.toml",
        home.agents_json: TEMPLATES / "agents.json",
        home.shared_memory: TEMPLATES / "SHAREDMEMORY.md",
        home.root / DEMO_RULES: TEMPLATES / DEMO_RULES,
    }
    made: list[Path] = []
    try:
        home.create()
        for path, template in files.items():
            if not path.exists() and not path.is_symlink():
                write_atomic(path, template.read_bytes())
                made.append(path)
        schema = _SHIPPED_SCHEMA.read_bytes()
        path = home.root / SCHEMA
        if not path.exists() or path.read_bytes() != schema:
            write_atomic(path, schema)
    except OSError as error:
        where = error.filename or home.root
        raise Failed(f"the home can't be made: {where}: {error.strerror or error}") from None
    return made
