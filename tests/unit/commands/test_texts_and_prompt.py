"""What models and people read: envelopes, instructions, states, lengths of time."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from agentsup.agents.persona import prompt
from agentsup.agents.turn.own_calls import call_key
from agentsup.agents.turn.usage import SuspendedTurn
from agentsup.catalogue import Note, words
from agentsup.commands import texts
from agentsup.kit.pool import IDLE
from agentsup.mailbox.mail import DirectoryEntry
from agentsup.model.agent import AgentSpec
from agentsup.model.control import AgentView, StopReport
from agentsup.model.engine import Resume
from agentsup.model.ids import AgentId
from agentsup.model.message import Part

VIEW = AgentView(
    name="ann",
    agent_id="agt_1",
    instance_id="ins_1",
    status="running",
    desired="up",
    role="",
    engine="llm",
    model="m1",
    uptime_s=3700,
    restarts=0,
    last_reason="",
    last_crash_error="",
    next_retry_at=None,
    queued=2,
    running=1,
    parked=0,
)


@pytest.mark.parametrize(
    "seconds, text",
    [
        (None, "–"),
        (0, "0 s"),
        (59.9, "59 s"),
        (60, "1 min 0 s"),
        (601, "10 min"),
        (3600, "1 h 0 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_lengths_of_time(seconds: float | None, text: str) -> None:
    assert texts.duration(seconds) == text


def test_a_note_is_said_in_the_language_of_the_person() -> None:
    note = Note.of("context.ollama", tokens=4096, wanted=32768)
    view = replace(VIEW, warnings=(note, "as it is"))
    german = texts.agent(view, 0, words("de"))
    assert "der Modellserver bietet 4096 Tokens" in german
    assert "as it is" in german
    assert note.startswith("the model server serves 4096 tokens")
    assert note in texts.agent(view, 0, words())


def test_an_agent_in_a_few_lines() -> None:
    assert texts.agent(VIEW, 0, words()).splitlines() == [
        "● ann - running, up 1 h 1 min",
        "   llm / m1",
        "   2 queued, 1 running, 0 waiting for you",
    ]
    failed = replace(VIEW, status="failed", last_reason="boom", restarts=5, uptime_s=None)
    assert "revive it with /agent_start ann" in texts.agent(failed, 0, words())
    assert "5 restarts lately: boom" in texts.agent(failed, 0, words())
    backoff = replace(VIEW, status="backoff", next_retry_at=10_000)
    assert "next try in 6 s" in texts.agent(backoff, 4_000, words())
    stopped = replace(VIEW, status="stopped", desired="down")
    assert "stopped by an operator" in texts.agent(stopped, 0, words())


def test_a_stop_in_words() -> None:
    none = StopReport("all", 0, 0, 0, 0, 0, 1.0)
    assert texts.stop(none, words()) == "Nothing was running or waiting. The agents stay up."
    some = StopReport("all", 1, 2, 3, 1, 2, 12.4)
    assert texts.stop(some, words()) == (
        "Stopped: 1 running answer, 2 queued messages, 3 messages with open questions, 1 process, "
        "of 2 agents (12 ms). The agents stay up."
    )
    assert "could not record it" in texts.stop(replace(some, durable=False), words())


def test_standing_instructions() -> None:
    spec = AgentSpec("ann", description="Knows cats.", prompt="Be brief.")
    text = prompt.system_prompt(spec, shared=" The cat is Tom. ", peers=("ben", "cat"))
    assert text.startswith("You are ann, an agent run by agentsup. Knows cats.")
    assert "Be brief." in text
    assert "ben, cat" in text
    assert text.endswith("Shared knowledge of all agents:\nThe cat is Tom.")
    assert prompt.system_prompt(AgentSpec("ann"), shared="", peers=()).count("\n") == 0


def test_a_profile_joins_the_instructions(tmp_path: Path) -> None:
    spec = AgentSpec(
        "ann",
        nickname="Aria",
        role="researcher",
        team="desk",
        prompt="You, {nickname} ({name}), are {role} of {team}. Keep {other} and {} and {name.",
        skills=("citing", "flying", "Say where it stands."),
    )
    (tmp_path / "citing.md").write_text("Name the page.\n", encoding="utf-8")
    skills = prompt.skill_texts(tmp_path, spec.skills)
    assert skills == ("Name the page.", "flying", "Say where it stands.")
    mates = [
        entry("ann", "desk"),
        replace(entry("ben", "Desk"), nickname="Kai", role="engineer", capabilities=("go", "c")),
        entry("cat", "other"),
    ]
    team = prompt.team_block(spec, mates)
    assert team == "With you in team desk:\n- Kai (agent ben), engineer; go, c"
    text = prompt.system_prompt(spec, shared="", peers=(), team=team, skills=skills)
    assert text.startswith("You are Aria (agent ann), an agent run by agentsup.")
    assert "You, Aria (ann), are researcher of desk. Keep {other} and {} and {name." in text
    assert "Name the page.\n\nflying\n\nSay where it stands." in text
    assert text.endswith(team)
    assert prompt.team_block(AgentSpec("cat"), mates) == ""
    assert prompt.team_block(AgentSpec("cat", team="other"), mates) == ""


def test_a_skill_that_is_edited_is_read_anew(tmp_path: Path) -> None:
    for text in ("one", "three"):
        (tmp_path / "citing.md").write_text(text, encoding="utf-8")
        assert prompt.skill_texts(tmp_path, ("citing",)) == (text,)
    assert prompt.skill_texts(tmp_path, ("../citing",)) == ("../citing",)


def busy_threads() -> int:
    return sum(not each.name.endswith(IDLE) for each in threading.enumerate())


def test_a_skill_that_does_not_answer_costs_one_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over, asked = threading.Event(), list[Path]()
    (tmp_path / "citing.md").write_text("Name the page.", encoding="utf-8")

    def hang(path: Path) -> str:
        asked.append(path)
        over.wait()
        return ""

    real = prompt._text
    monkeypatch.setattr(prompt, "_text", lambda path: (hang if "lost" in path.name else real)(path))
    before = busy_threads()
    try:
        for _ in range(5):
            texts = prompt.skill_texts(tmp_path, ("lost", "citing"))
            assert texts == ("lost", "Name the page.")
        assert asked == [tmp_path / "lost.md"]
        assert busy_threads() <= before + 1
    finally:
        over.set()


def entry(name: str, team: str) -> DirectoryEntry:
    return DirectoryEntry(AgentId(name), name, "running", team=team)


def test_a_call_is_known_by_its_content() -> None:
    assert call_key("t", {"a": 1, "b": 2}) == call_key("t", {"b": 2, "a": 1})
    assert call_key("t", {"a": 1}) != call_key("t", {"a": 2})
    assert call_key("t", {}) != call_key("u", {})


def test_what_a_suspended_turn_carries_comes_back() -> None:
    carried = SuspendedTurn({"k": 2}, (Part("file", path="a", name="a"),), b"one\ntwo")
    assert SuspendedTurn.of(Resume(carried.pack(), "yes")) == carried
    assert SuspendedTurn.of(None) == SuspendedTurn()
    assert SuspendedTurn.of(Resume(None)) == SuspendedTurn()
