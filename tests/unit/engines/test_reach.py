"""What is known, before a turn runs, of whether a setting reaches an engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentsup.engines.registry import unable, why_ignored
from agentsup.model.engine import EngineSpec


@pytest.mark.parametrize(
    "field, engine, options, told",
    [
        ("model", "scripted", {}, "uses no model"),
        ("model", "command", {}, ""),
        ("model", "command", {"input": "text"}, "engine_options.input"),
        ("model", "llm", {}, ""),
        ("model", "llm", {"model": "fixed"}, "engine_options.model"),
        ("model", "claude", {}, ""),
        ("model", "gemini", {}, ""),
        ("provider", "llm", {}, ""),
        ("provider", "llm", {"provider": "openai"}, "engine_options.provider"),
        ("provider", "claude", {}, "no choice of provider"),
        ("reasoning_effort", "claude", {}, ""),
        ("reasoning_effort", "llm", {}, "has no setting"),
        ("permission_mode", "scripted", {}, ""),
    ],
)
def test_what_nothing_would_hear_is_named(
    field: str, engine: str, options: dict[str, Any], told: str
) -> None:
    found = why_ignored(field, EngineSpec(engine=engine, options=options))
    assert told in found
    assert bool(found) == bool(told)


def test_an_engine_that_could_not_work_says_why(tmp_path: Path) -> None:
    program = tmp_path / "claude"
    env = {"PATH": str(tmp_path)}

    def said(engine: str, installed: bool = True, **options: Any) -> str:
        return unable(
            EngineSpec(engine=engine, options=options), env, is_installed=lambda name: installed
        )

    assert "is not on the PATH (" in said("claude")
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert said("claude") == ""
    assert "engine_options.rules of the engine claude" in said("claude", rules=[])
    assert "needs engine_options.command" in said("acp")
    assert "agentsup[acp]" in said("gemini", installed=False)
    assert said("acp", command=[str(program)]) == ""
    assert said("scripted", rules=[]) == ""
