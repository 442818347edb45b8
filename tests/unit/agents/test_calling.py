"""What a coding agent asks leave for by itself, before it is asked about."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from agentsup.agents.turn.own_calls import classified
from agentsup.kit.pool import BoundedPool
from agentsup.model.engine import PermissionRequest
from agentsup.model.tool import Effect, Safety

READ = {"file_path": "notes.txt"}


async def test_a_file_of_the_workspace_is_read_without_a_question(tmp_path: Path) -> None:
    asked = PermissionRequest("1", "Read", READ)
    found = await classified(asked, str(tmp_path), BoundedPool("files"), "ada")
    assert (found.name, found.safety, found.effect) == ("fs_read", Safety.SAFE, Effect.READ)


async def test_a_file_on_a_disk_that_does_not_answer_is_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is anybody kept by it: its path is the engine's to choose."""
    over, lstat = threading.Event(), os.lstat

    def hanging(path: Any, *args: Any, **kwargs: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            over.wait(60)
        return lstat(path, *args, **kwargs)

    monkeypatch.setattr(os, "lstat", hanging)
    files = BoundedPool("files", limit_s=0.05)
    asked = PermissionRequest("1", "Read", READ)
    try:
        for _ in range(3):
            found = await classified(asked, str(tmp_path), files, "ada")
            assert (found.name, found.safety, found.effect) == (
                "fs_read",
                Safety.DANGEROUS,
                Effect.BLIND,
            )
        assert await files.run(lambda: "well", key="ben") == "well"
    finally:
        over.set()
