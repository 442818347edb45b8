"""Each kind of program has a home of its own, with our settings in it and its old sessions."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from agentsup.engines.process.homes import ACP, COMMAND, EngineHome, coding_agent_folders, exec_home
from agentsup.engines.programs.cli_agent_policies import (
    CLAUDE,
    CLAUDE_ACP,
    CODEX,
    GEMINI,
    KINDS,
    MOVED_BY,
    OPENCODE,
    UNKNOWN,
    AgentSettings,
)
from agentsup.engines.programs.presets import PROGRAMS, Preset, variables
from agentsup.model.engine import EngineSpec
from agentsup.model.principal import NOBODY, OPERATORS


@pytest.fixture
def spec(tmp_path: Path) -> EngineSpec:
    workspace = tmp_path / "agent" / "workspace"
    workspace.mkdir(parents=True)
    return EngineSpec("x", workspace=str(workspace), env={"HOME": "/home/ann", "PATH": "/bin"})


def home_of(
    spec: EngineSpec, settings: AgentSettings, kind: str = "x", *, private: bool = True
) -> EngineHome:
    return EngineHome.of(spec, kind, settings, is_private=private)


def test_no_two_kinds_share_a_home(spec: EngineSpec) -> None:
    homes = [home_of(spec, each) for each in KINDS.values()]
    homes += [home_of(spec, UNKNOWN, kind) for kind in (COMMAND, ACP)]
    paths = [each.path for each in homes]
    assert len(set(paths)) == len(paths)
    assert not any(a != b and a.is_relative_to(b) for a in paths for b in paths)
    assert home_of(spec, CLAUDE).path == home_of(spec, CLAUDE_ACP).path, "they share sessions"


def test_no_two_persons_share_a_home(spec: EngineSpec) -> None:
    """The operators are one party, and nobody's work is done where theirs is."""
    persons = [
        "person:anna",
        "person:ben",
        "person:../../ann",
        "person:" + "x" * 5000,
        "person:\udcff",
    ]
    for settings in KINDS.values():
        whose = {each: home_of(replace(spec, person=each), settings).path for each in persons}
        plain = {home_of(replace(spec, person=p), settings).path for p in ("", NOBODY, OPERATORS)}
        assert plain == {Path(spec.workspace).parent / "engine-home" / settings.kind}
        paths = [*whose.values(), *plain]
        assert not any(a.is_relative_to(b) for a, b in itertools.permutations(paths, 2))
        assert all(path.is_relative_to(Path(spec.workspace).parent) for path in paths)
    homes = [exec_home(Path(spec.workspace), person) for person in ("", *persons)]
    assert len(set(homes)) == len(homes)


def test_a_person_begins_with_an_empty_home(spec: EngineSpec) -> None:
    """What lies in the operators' home, or lay in that of all engines, is nobody else's."""
    shared(spec, *SESSIONS["claude"])
    home_of(spec, CLAUDE).lay()
    hers = home_of(replace(spec, person="person:anna"), CLAUDE)
    hers.lay()
    assert {path.name for path in hers.path.rglob("*") if path.is_file()} == {"settings.json"}
    assert (home_of(spec, CLAUDE).path / SESSIONS["claude"][0]).exists()


def test_every_agent_that_is_known_has_settings_of_its_own() -> None:
    for preset in PROGRAMS.values():
        assert preset.settings.kind in KINDS, preset.name
        for login in preset.logins:
            assert any(
                login == keep or login.startswith(f"{keep}/") for keep in preset.settings.keeps
            ), f"the sign-in of {preset.name} is closed to others"


@pytest.mark.parametrize("settings", list(KINDS.values()), ids=lambda each: each.kind)
def test_what_steers_is_ours_before_each_turn(spec: EngineSpec, settings: AgentSettings) -> None:
    home = home_of(spec, settings)
    home.lay()
    for name in (*settings.written, *settings.unwanted):
        path = home.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("planted")
    told = home.lay()
    assert {home.path / name for name in settings.unwanted if (home.path / name).exists()} == set()
    for name, text in settings.written.items():
        assert (home.path / name).read_text() == text
    assert len(told) == len(settings.unwanted)
    assert home.lay() == []


@pytest.mark.parametrize("settings", [GEMINI, CODEX], ids=lambda each: each.kind)
def test_files_of_a_workspace_that_no_switch_shuts_out_are_set_aside(
    spec: EngineSpec, settings: AgentSettings
) -> None:
    home, workspace = home_of(spec, settings), Path(spec.workspace)
    for name in settings.project:
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text(f"planted {name}")
    told = home.lay()
    assert len(told) == len(settings.project)
    for name in settings.project:
        assert not (workspace / name).exists()
        aside = workspace / f"{name}.set-aside-1"
        assert aside.read_text() == f"planted {name}", "what a person wrote is kept"
        assert any(name in each and aside.name in each for each in told)


def test_a_link_on_the_way_is_set_aside_itself(spec: EngineSpec, tmp_path: Path) -> None:
    home, workspace, elsewhere = home_of(spec, GEMINI), Path(spec.workspace), tmp_path / "other"
    elsewhere.mkdir()
    (elsewhere / "settings.json").write_text("planted")
    (workspace / ".gemini").symlink_to(elsewhere)
    home.lay()
    (home.path / ".gemini").rename(home.path / "away")
    (home.path / ".gemini").symlink_to(elsewhere)
    home.lay()
    assert not (workspace / ".gemini").exists()
    assert not (home.path / ".gemini").is_symlink()
    assert (elsewhere / "settings.json").read_text() == "planted"


def test_the_users_own_home_is_left_alone(spec: EngineSpec, tmp_path: Path) -> None:
    user = tmp_path / "user"
    (user / ".gemini").mkdir(parents=True)
    (user / ".gemini" / "settings.json").write_text("{}")
    own = EngineSpec("x", workspace=spec.workspace, env={"HOME": str(user)})
    home = home_of(own, GEMINI, private=False)
    assert home.lay() == []
    assert (user / ".gemini" / "settings.json").read_text() == "{}"
    env = home.variables(own.env, {})
    assert env["HOME"] == str(user)
    assert env["XDG_CACHE_HOME"] == str(home.path / ".cache"), "it can't write the user's"
    assert home.paths.opened == (str(user / ".gemini"),)


def test_what_an_entry_says_counts_over_our_switches(spec: EngineSpec) -> None:
    home = home_of(spec, OPENCODE)
    env = home.variables(spec.env, {"OPENCODE_CONFIG": "/srv/mine.json"})
    assert env["OPENCODE_CONFIG"] == "/srv/mine.json"
    assert env["OPENCODE_DISABLE_PROJECT_CONFIG"] == "1"
    assert env["XDG_CONFIG_HOME"] == str(home.shown)
    home.lay()
    rules = json.loads((home.shown / "rules.json").read_text())
    assert rules == {"instructions": [f"{spec.workspace}/AGENTS.md"]}


def test_opencode_asks_for_all_but_reading_and_our_own_tools(spec: EngineSpec) -> None:
    """It takes the last rule that fits; our tools ask by themselves, where their calls arrive."""
    env = home_of(spec, OPENCODE).variables(spec.env, {})
    rules = json.loads(env["OPENCODE_PERMISSION"])
    asked = {
        tool: [then for rule, then in rules.items() if fnmatchcase(tool, rule)][-1]
        for tool in ("agentsup_ask_agent", "other_ask_agent", "bash", "edit", "task", "read")
    }
    assert [tool for tool, then in asked.items() if then == "allow"] == [
        "agentsup_ask_agent",
        "read",
    ]
    assert set(asked.values()) == {"allow", "ask"}


# -- an earlier version kept all in one home ---------------------------------------------------------


def shared(spec: EngineSpec, *names: str) -> Path:
    root = Path(spec.workspace).parent / "engine-home"
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"of {name}")
    return root


SESSIONS = {
    "claude": (".claude/projects/w/1.jsonl", ".claude.json"),
    "gemini": (".gemini/tmp/chats/1.json",),
    "codex": (".codex/sessions/1.jsonl",),
    "opencode": (".local/share/opencode/opencode.db", ".config/opencode/x"),
}


@pytest.mark.parametrize("kind", SESSIONS)
def test_each_agent_gets_what_was_its_own_and_nothing_else(spec: EngineSpec, kind: str) -> None:
    everything = [name for names in SESSIONS.values() for name in names]
    root = shared(spec, *everything, ".mine", ".local/share/other/x")
    home = home_of(spec, KINDS[kind])
    home.lay()
    moved = {str(p.relative_to(home.path)) for p in home.path.rglob("*") if p.is_file()}
    kept = {name for name in SESSIONS[kind] if name not in KINDS[kind].unwanted}
    assert {name for name in kept if not name.startswith(".config/opencode")} <= moved
    assert moved <= {*SESSIONS[kind], *KINDS[kind].written}
    left = {str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()} - {
        f"{kind}/{name}" for name in moved
    }
    assert left == {*everything, ".mine", ".local/share/other/x"} - {*SESSIONS[kind]}


def test_a_program_of_somebodys_own_gets_the_rest(spec: EngineSpec) -> None:
    root = shared(spec, ".claude/projects/1", ".mine/state", "cache.db", ".config/mine")
    home = home_of(spec, UNKNOWN, COMMAND)
    home.lay()
    assert (home.path / ".mine" / "state").read_text() == "of .mine/state"
    assert (home.path / "cache.db").exists()
    assert (home.path / ".config" / "mine").exists()
    assert (root / ".claude" / "projects" / "1").exists()


def test_a_move_that_was_broken_off_is_gone_on_with(spec: EngineSpec) -> None:
    root = shared(spec, ".claude/projects/1")
    unfinished = root / "claude.part"
    unfinished.mkdir()
    (root / ".claude").rename(unfinished / ".claude")
    shared(spec, ".claude.json")
    home = home_of(spec, CLAUDE)
    home.lay()
    assert (home.path / ".claude" / "projects" / "1").exists()
    assert (home.path / ".claude.json").exists()
    assert not unfinished.exists()


def test_a_link_planted_in_place_of_a_home_leads_nowhere(spec: EngineSpec, tmp_path: Path) -> None:
    root, elsewhere = shared(spec, ".claude/projects/1"), tmp_path / "other"
    elsewhere.mkdir()
    (root / "claude").symlink_to(elsewhere)
    home = home_of(spec, CLAUDE)
    home.lay()
    assert not home.path.is_symlink()
    assert (home.path / ".claude" / "projects" / "1").exists()
    assert list(elsewhere.iterdir()) == []


def test_what_agents_keep_in_the_users_home_is_known() -> None:
    found = coding_agent_folders({"HOME": "/home/ann"})
    assert {"/home/ann/.claude", "/home/ann/.codex", "/home/ann/.local/share/opencode"} <= set(
        found
    )
    assert coding_agent_folders({}) == ()


def test_what_agents_keep_elsewhere_is_known_by_its_variable() -> None:
    found = coding_agent_folders(
        {
            "CODEX_HOME": "/srv/codex",
            "XDG_CONFIG_HOME": "/srv/config",
            "OPENCODE_CONFIG": "own.json",
        }
    )
    assert set(found) == {"/srv/codex", "/srv/config/opencode", "/srv/config/goose"}


@pytest.mark.parametrize("preset", PROGRAMS.values(), ids=lambda each: each.name)
def test_no_variable_of_the_daemon_puts_other_settings_in_place_of_ours(
    spec: EngineSpec, preset: Preset
) -> None:
    ours = {**preset.settings.env, **preset.settings.private_env}
    steering = {*ours, *MOVED_BY, "OPENCODE_CONFIG_CONTENT", "HOME", "XDG_CONFIG_HOME"}
    foreign = dict.fromkeys((*preset.env_names, *steering), "/srv/foreign")
    home = EngineHome.of(spec, preset.name, preset.settings)
    found = home.variables(spec.env, variables(preset, foreign))
    assert not [name for name in steering if found.get(name) == "/srv/foreign"]
    assert not [name for name in preset.env_names if name.endswith(("_HOME", "_DIR", "_CONFIG"))]


def test_folders_of_a_program_in_its_users_home_are_there_before_the_fence(
    spec: EngineSpec, tmp_path: Path
) -> None:
    """The fence opens what exists; a program could not make its folder in the closed home."""
    user = tmp_path / "user"
    user.mkdir()
    home_of(replace(spec, env={"HOME": str(user)}), OPENCODE, private=False).lay()
    assert (user / ".local/share/opencode").is_dir()
    home_of(replace(spec, env={"HOME": str(tmp_path / "gone")}), OPENCODE, private=False).lay()
    assert not (tmp_path / "gone").exists()
