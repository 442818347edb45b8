"""Names, the choice for ``auto``, and what is imported when."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from agentsup.engines.failures import ExtraMissing, NotConfigured, UnknownEngine
from agentsup.engines.llm.settings import NO_KEY, read_settings
from agentsup.engines.programs.presets import AUTO_ORDER, PROGRAMS, sign_in_of
from agentsup.engines.registry import registry as registry_module
from agentsup.engines.registry.registry import (
    EngineRegistry,
    best_available,
    default_registry,
    llm_problem,
    needs_users_home,
)
from agentsup.engines.scripted.engine import ScriptedEngine
from agentsup.kit.childenv import child_env
from agentsup.kit.clock import SystemClock
from agentsup.kit.own_command import naming
from agentsup.kit.procgroup import ProcessGroup
from agentsup.model.agent import Engine
from agentsup.model.engine import EngineSpec


async def test_engines_are_made_once_and_closed() -> None:
    made: list[ScriptedEngine] = []

    class Counting(ScriptedEngine):
        is_closed = False

        async def close(self) -> None:
            self.is_closed = True

    def factory() -> Counting:
        engine = Counting(SystemClock())
        made.append(engine)
        return engine

    registry = EngineRegistry({"mine": factory})
    assert registry.get("mine") is registry.get("mine")
    assert len(made) == 1
    await registry.close()
    assert made[0].is_closed  # type: ignore[attr-defined]  # Counting has it


def test_an_unknown_engine_names_the_close_one() -> None:
    registry = default_registry(SystemClock(), {})
    assert {"claude", "command", "llm", "scripted"} <= set(registry.names)
    with pytest.raises(UnknownEngine, match="did you mean 'scripted'"):
        registry.get("scriptd")


def test_a_missing_extra_is_one_line_with_the_command() -> None:
    def factory() -> ScriptedEngine:
        raise ModuleNotFoundError("No module named 'acp'", name="acp")

    registry = EngineRegistry({"acp": factory})
    with pytest.raises(ExtraMissing, match=r"\(acp\): run pip install 'agentsup\[acp\]'"):
        registry.get("acp")


@pytest.mark.parametrize(
    "env, spec, installed, name, why",
    [
        ({}, {}, True, "scripted", "no model is configured"),
        ({"OPENAI_API_KEY": ""}, {"model": "m"}, True, "llm", "model m is named but"),
        ({}, {"options": {"model": "q"}}, True, "llm", "has no key for it"),
        ({}, {"options": {"api_key": "k"}}, True, "llm", "no model is named"),
        ({"OPENAI_BASE_URL": "http://x"}, {}, False, "llm", r"pip install 'agentsup"),
        ({"OPENAI_API_KEY": "k"}, {}, True, "scripted", "no model is named"),
        ({"OPENAI_API_KEY": "k"}, {"model": "m"}, True, "llm", "model m, OPENAI_API_KEY"),
        ({"ANTHROPIC_API_KEY": "k"}, {"model": "m"}, True, "llm", "ANTHROPIC_API_KEY"),
        ({"OPENAI_BASE_URL": "http://x"}, {}, True, "llm", "model of the endpoint at http://x"),
        ({}, {"options": {"base_url": "http://x", "model": "q"}}, True, "llm", "model q at"),
        ({}, {"model": "m", "options": {"api_key": "k"}}, True, "llm", "engine_options.api_key"),
        ({"OPENAI_API_KEY": "k"}, {"model": "m"}, False, "llm", r"pip install 'agentsup"),
        (
            {"OPENAI_API_KEY": "k"},
            {"model": "claude-x"},
            True,
            "llm",
            "put ANTHROPIC_API_KEY=… into",
        ),
        ({"ANTHROPIC_API_KEY": "k"}, {"model": "sonnet"}, True, "llm", "Claude Code alone"),
        ({"ANTHROPIC_BASE_URL": "http://x"}, {}, True, "llm", "model of the endpoint at http://x"),
        (
            {},
            {"model": "m", "provider": "anthropic"},
            True,
            "llm",
            "put ANTHROPIC_API_KEY=… into",
        ),
    ],
)
def test_auto_takes_the_best_engine_and_puts_nothing_in_the_place_of_a_named_model(
    env: Mapping[str, str],
    spec: dict[str, Any],
    installed: bool,
    name: str,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry_module, "has_llm_extra", lambda: installed)
    chosen, reason = best_available(env, EngineSpec("auto", **spec))
    assert chosen == name
    assert why in reason
    problem = llm_problem(EngineSpec("llm", **spec), env)
    assert not problem or chosen == "scripted" or reason == problem, "what is missing is told"


def put(program: Path) -> None:
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)


def _programs(root: Path, *names: str) -> dict[str, str]:
    """A PATH with those programs and a home, as an environment."""
    (root / "bin").mkdir(exist_ok=True)
    for name in names:
        put(root / "bin" / name)
    return {"PATH": str(root / "bin"), "HOME": str(root)}


def test_auto_takes_an_agent_that_is_installed_and_signed_in(tmp_path: Path) -> None:
    env = _programs(tmp_path, "gemini", "opencode", "codex-acp")
    assert best_available(env, EngineSpec("auto"))[0] == "scripted"
    name, why = best_available(env | {"OPENAI_API_KEY": "k"}, EngineSpec("auto"))
    assert (name, "signed in by OPENAI_API_KEY" in why) == ("codex", True)
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex" / "auth.json").write_text("{}")
    name, why = best_available(env, EngineSpec("auto"))
    assert (name, "auth.json" in why) == ("codex", True)
    assert needs_users_home("codex", env)
    assert not needs_users_home("codex", env | {"OPENAI_API_KEY": "k"})
    assert not needs_users_home("scripted", env)
    model = EngineSpec("auto", model="m")
    name, _ = best_available(env | {"OPENAI_API_KEY": "k"}, model)
    assert name == "llm", "a configured model comes first"


@pytest.mark.parametrize("model", ["", "default", "sonnet"])
def test_auto_asks_no_endpoint_of_claude_for_a_model_that_nobody_named(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_module, "has_llm_extra", lambda: True)
    env = _programs(tmp_path, "claude") | {"ANTHROPIC_BASE_URL": "http://x"}
    spec = EngineSpec("auto", model=model)
    assert best_available(env, spec)[0] == "llm", "there is nothing else to ask it"
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / ".credentials.json").write_text("{}")
    name, why = best_available(env, spec)
    assert (name, "ANTHROPIC_BASE_URL" in why) == ("claude", True)
    assert best_available(env, replace(spec, model="claude-x"))[0] == "llm"
    assert best_available(env, replace(spec, options={"base_url": "http://y"}))[0] == "llm"


def test_a_sign_in_that_its_maker_has_ended_counts_as_none(tmp_path: Path) -> None:
    env = _programs(tmp_path, "gemini", "qwen")
    for folder in (".gemini", ".qwen"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "oauth_creds.json").write_text("{}")
    name, why = best_available(env, EngineSpec("auto"))
    assert (name, "GEMINI_API_KEY" in why) == ("scripted", True)
    assert not needs_users_home("gemini", env)
    assert not needs_users_home("qwen", env)
    by = sign_in_of(PROGRAMS["qwen"], env, os.path.isfile)
    assert (bool(by), str(by).startswith("not signed in: ")) == (False, True)
    for key in ("GEMINI_API_KEY", "GOOGLE_CLOUD_PROJECT"):
        assert best_available(env | {key: "k"}, EngineSpec("auto"))[0] == "gemini"
    assert needs_users_home("gemini", env | {"GOOGLE_CLOUD_PROJECT": "k"})


def test_auto_tells_of_an_agent_that_is_not_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    env = {"PATH": "/usr/bin", "HOME": str(tmp_path), "ANTHROPIC_API_KEY": "k"}
    put(tmp_path / ".local" / "bin" / "claude")
    name, why = best_available(env, EngineSpec("auto"))
    assert (name, str(tmp_path / ".local" / "bin") in why) == ("scripted", True)


def test_auto_takes_a_program_only_for_models_that_it_can_have(tmp_path: Path) -> None:
    env = _programs(tmp_path, "claude") | {"ANTHROPIC_API_KEY": "k"}

    def auto(model: str, **more: str) -> tuple[str, str]:
        spec = EngineSpec("auto", model=model)
        return best_available(env | more, spec)

    name, why = auto("sonnet")
    assert (name, "can't use model sonnet" in why) == ("claude", True)
    assert auto("sonnet", ANTHROPIC_BASE_URL="")[0] == "claude"
    assert auto("claude-x")[0] == "llm"
    name, why = auto("gpt-x", ANTHROPIC_API_KEY="", CLAUDE_CODE_OAUTH_TOKEN="t")
    assert (name, "put OPENAI_API_KEY=… into" in why) == ("llm", True)


def test_every_engine_that_an_entry_may_name_is_there() -> None:
    assert {*default_registry(SystemClock(), {}).names, "auto"} == set(get_args(Engine))
    assert set(AUTO_ORDER) <= set(PROGRAMS)


@pytest.mark.parametrize(
    "spec, dialect, model",
    [
        ({"model": "gpt-x"}, "openai", "gpt-x"),
        ({"model": "claude-x"}, "anthropic", "claude-x"),
        ({"model": "anthropic:claude-x"}, "anthropic", "claude-x"),
        ({"model": "openai:claude-x"}, "openai", "claude-x"),
        ({"model": "qwen3:8b"}, "openai", "qwen3:8b"),
        ({"model": "claude-x", "provider": "openai"}, "openai", "claude-x"),
        ({"model": "m", "provider": "claude"}, "anthropic", "m"),
    ],
)
def test_the_dialect_follows_provider_and_model(
    spec: dict[str, Any], dialect: str, model: str
) -> None:
    env = {"OPENAI_API_KEY": "a", "ANTHROPIC_API_KEY": "b"}
    settings = read_settings(EngineSpec("llm", **spec), env)
    assert (settings.endpoint.dialect, settings.model) == (dialect, model)
    assert settings.endpoint.api_key == ("a" if dialect == "openai" else "b")


def test_a_key_of_the_environment_never_goes_to_an_endpoint_that_an_entry_names() -> None:
    env = {"OPENAI_API_KEY": "secret", "OPENAI_BASE_URL": "http://mine/v1"}
    assert read_settings(EngineSpec("llm", model="m"), env).endpoint.api_key == "secret"
    spec = EngineSpec("llm", model="m", options={"base_url": "http://elsewhere/v1"})
    settings = read_settings(spec, env)
    assert settings.endpoint.api_key == NO_KEY
    assert settings.endpoint.base_url == "http://elsewhere/v1"


def test_an_endpoint_alone_is_enough_and_a_key_never_shows() -> None:
    settings = read_settings(EngineSpec("llm"), {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"})
    assert settings.model == "", "its server is asked"
    spec = EngineSpec("llm", model="m", options={"api_key": "sk-secret"})
    assert "sk-secret" not in repr(read_settings(spec, {}))
    with pytest.raises(NotConfigured):
        read_settings(EngineSpec("llm", model="m"), {})


async def test_nothing_heavy_is_imported_before_a_session_is_opened() -> None:
    code = (
        "import sys\n"
        "from agentsup.engines.registry.registry import default_registry\n"
        "from agentsup.engines import guard\n"
        "from agentsup.kit.clock import SystemClock\n"
        "import asyncio\n"
        "async def main():\n"
        "    r = default_registry(SystemClock(), {})\n"
        "    assert 'yaml' not in sys.modules, 'registry alone'\n"
        "    r.get('scripted'); r.get('llm')\n"
        "asyncio.run(main())\n"
        "heavy = {'pydantic_ai', 'openai', 'anthropic', 'httpx2', 'aiohttp'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)\n"
    )
    group = await ProcessGroup.spawn(
        [sys.executable, "-c", code], env=child_env(extra={"PYTHONPATH": sys.path[0]}), cwd="."
    )
    async with group:
        output = await group.communicate(limit_bytes=10_000)
    assert output.code == 0, output.stderr_tail.decode()


def test_what_mends_it_names_the_home() -> None:
    with naming(Path("/srv/home"), Path("/home/anna/.agentsup")):
        _, why = best_available({}, EngineSpec(engine="auto"))
        named = llm_problem(EngineSpec(engine="auto", model="gpt-5-mini"), {})
    for text in (why, named):
        assert "`agentsup --home /srv/home setup`" in text
