"""What the command line says about engines that are worse than what the files name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentsup.cli.output.reads import engine_notes, lost_engines
from agentsup.daemon.runtime import DaemonEngines
from agentsup.engines import NotConfigured
from agentsup.engines.registry import EngineRegistry
from agentsup.model.agent import AgentSpec
from agentsup.model.secret import Secret


def agent(name: str, engine: str = "llm", problem: str = "") -> dict[str, Any]:
    return {"name": name, "engine": engine, "model": "m", "engine_problem": problem}


def test_agents_with_the_same_problem_share_a_line() -> None:
    agents = [agent("main", problem="no key"), agent("a"), agent("b", problem="no key")]
    assert engine_notes(agents) == ["main, b: no key"]


def test_only_what_got_worse_is_lost() -> None:
    before = [agent("main"), agent("a", problem="no key"), agent("gone")]
    now = [
        agent("main", "scripted", "no key"),
        agent("a", problem="no key"),
        agent("new", problem="x"),
    ]
    [lost] = lost_engines(before, now)
    assert lost == ("main thought with llm and m before, and now with the offline engine: no key")
    [lost] = lost_engines(before, [agent("main", problem="no key")])
    assert lost == "main thought with llm and m before, and can't now: no key"


@pytest.mark.parametrize(
    "spec, env, said",
    [
        (AgentSpec(name="a", engine="scripted"), {}, ""),
        (AgentSpec(name="a", engine="llm", model="gpt-x"), {}, "put OPENAI_API_KEY=… into"),
        (AgentSpec(name="a", engine="llm", model="gpt-x"), {"OPENAI_API_KEY": "k"}, ""),
        (
            AgentSpec(name="a", engine="claude"),
            {"PATH": ""},
            "the program claude is not on the PATH",
        ),
        (AgentSpec(name="a", engine="auto"), {"PATH": ""}, "no model is configured"),
        (
            AgentSpec(
                name="a",
                engine="llm",
                model="m",
                engine_options={"api_key": Secret("file:secrets/gone.key")},
            ),
            {},
            "the secret file",
        ),
    ],
)
def test_an_engine_that_cant_work_as_declared_says_why(
    tmp_path: Path, spec: AgentSpec, env: dict[str, str], said: str
) -> None:
    engines = DaemonEngines(EngineRegistry({}), tmp_path, env)
    problem = engines.shortfall(spec)
    assert said in problem
    assert bool(said) == bool(problem)


def test_a_key_file_that_is_gone_is_no_reason_for_another_engine(tmp_path: Path) -> None:
    options = {"api_key": Secret("file:secrets/gone.key"), "script": "file:rules.yaml"}
    spec = AgentSpec(name="a", engine="auto", model="m", engine_options=options)
    engines = DaemonEngines(EngineRegistry({}), tmp_path, {})
    assert engines.choice(spec)[0] == "llm"
    with pytest.raises(NotConfigured, match="the secret file"):
        engines.make(spec)
    assert "the secret file" in engines.shortfall(spec)
