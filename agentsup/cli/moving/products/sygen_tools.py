"""The tool scripts of Sygen's agents, made anew: the same names and words, asking our daemon."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

_CLIENT: Final = Path(__file__).parents[1] / "templates/agentsup_tools.py.txt"
_SCRIPTS: Final[Mapping[str, tuple[str, ...]]] = {
    "agent_tools": ("ask_agent", "ask_agent_async", "list_agents"),
    "task_tools": (
        *("create_task", "resume_task", "ask_parent", "list_tasks", "cancel_task", "delete_task"),
    ),
    "cron_tools": ("cron_add", "cron_list", "cron_remove"),
}
FOLDERS: Final = (*_SCRIPTS, "webhook_tools")
"""Folders of scripts that belong to Sygen itself and do not come."""
_SCRIPT: Final = '''"""As before; what it does is in ../agentsup_tools.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from agentsup_tools import main

main("{name}")
'''


def tool_scripts() -> dict[str, str]:
    """The scripts by their paths in a workspace."""
    scripts = {
        f"tools/{folder}/{name}.py": _SCRIPT.format(name=name)
        for folder, names in _SCRIPTS.items()
        for name in names
    }
    return {"tools/agentsup_tools.py": _CLIENT.read_text(encoding="utf-8"), **scripts}
