"""``agentsup import --from``: homes of other products, read and moved here."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agentsup.cli.app import app
from agentsup.cli.commands.setup_steps import other_homes
from agentsup.cli.connect.failure import CommandFailed
from agentsup.cli.moving import applying
from agentsup.cli.moving.applying import apply_move, check_plan
from agentsup.cli.moving.detect import read_home
from agentsup.cli.moving.json5 import BadJson5, parse_json5
from agentsup.cli.moving.plan import MovePlan, plan_move
from agentsup.cli.moving.source import SourceFolder
from agentsup.cli.moving.values import (
    MOST_MEMORIES,
    chat_of,
    memories_of,
    skill_of,
    text_of,
    variables,
)
from agentsup.cli.output.show import CommandOutput
from agentsup.config import Home, load, validate
from agentsup.kit.files import HomeLock
from agentsup.model.name import name_problem
from tests.support.moving_homes import (
    KEY,
    PERSON,
    TOKEN,
    hermes_home,
    nanobot_home,
    openclaw_home,
    openclaw_sqlite_home,
    put,
    sygen_home,
)

HOMES: dict[str, Callable[[Path], Path]] = {
    "sygen": sygen_home,
    "openclaw": openclaw_home,
    "openclaw-sqlite": openclaw_sqlite_home,
    "hermes": hermes_home,
    "nanobot": nanobot_home,
}


def _plan(there: Path, home: Home, product: str | None = None) -> MovePlan:
    source = SourceFolder(there)
    return plan_move(source, read_home(source, product), home)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture(params=list(HOMES))
def there(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    root = tmp_path / "there"
    root.mkdir()
    return HOMES[request.param](root)


def _rows(home: Home, statement: str) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(home.state_db)) as database:
        database.row_factory = sqlite3.Row
        return [dict(row) for row in database.execute(statement)]


def _entries(home: Home) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in json.loads(home.agents_json.read_text())["agents"]}


def _tree(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in _files(root)}


def _files(root: Path) -> Iterator[Path]:
    return (path for path in sorted(root.rglob("*")) if path.is_file() and not path.is_symlink())


# -- every product ---------------------------------------------------------------------------------


def test_what_comes_is_right_here_and_a_second_run_brings_nothing(there: Path, home: Home) -> None:
    before = _tree(there)
    plan = _plan(there, home)
    assert not home.root.exists(), "a plan writes nothing"
    brought = apply_move(plan, home)
    assert brought.files == len(plan.files) > 0
    assert not [one for one in validate(home) if one.is_error]
    assert load(home).specs["main"].telegram_token is not None
    assert _rows(home, "SELECT count(*) AS n FROM tasks")[0]["n"] == brought.tasks > 0
    files, rows = _tree(home.root / "agents"), _rows(home, "SELECT * FROM tasks ORDER BY task_id")
    entries = home.agents_json.read_text()

    again = apply_move(_plan(there, home), home)

    assert (again.files, again.memories, again.tasks, again.chats) == (0, 0, 0, 0)
    assert _tree(home.root / "agents") == files
    assert _rows(home, "SELECT * FROM tasks ORDER BY task_id") == rows
    assert home.agents_json.read_text() == entries
    assert _tree(there) == before, "the other home is only read"


def test_secrets_lie_in_files_for_their_owner_and_are_never_shown(there: Path, home: Home) -> None:
    runner = CliRunner()
    told = ""
    for words in ([], ["--json"], ["--apply"]):
        done = runner.invoke(app, ["--home", str(home.root), "import", str(there), *words])
        assert done.exit_code == 0, done.output
        told += done.output
    text = told + home.agents_json.read_text()
    for secret in (TOKEN, KEY, "a-long-password", "hook-secret", "hidden-from-everybody"):
        assert secret not in text
    files = list(home.secrets.iterdir())
    assert TOKEN in {path.read_text().strip() for path in files}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE(home.secrets.stat().st_mode) == 0o700


def test_a_failure_takes_everything_back(
    there: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.create()
    put(home.root, "agents.json", '[\n  {"name": "main"}\n]\n')
    put(home.root, "agents/main/MEMORY.md", "mine")
    before = _tree(home.root)

    async def fail(plan: MovePlan, to: Home) -> None:
        raise OSError(28, "No space left on device", str(to.state_db))

    monkeypatch.setattr(applying, "_write_store", fail)
    with pytest.raises(CommandFailed, match=r"No space left on device\. Nothing was changed"):
        apply_move(_plan(there, home), home)
    left = {
        n: d for n, d in _tree(home.root).items() if not n.startswith(("backups", "agentsup.lock"))
    }
    assert left == before
    assert not home.secrets.exists()


def test_nothing_is_written_beside_a_running_daemon(there: Path, home: Home) -> None:
    home.create()
    put(home.root, "agents.json", '[{"name": "main"}]')
    with HomeLock(home.lock), pytest.raises(CommandFailed, match="agentsup stop"):
        apply_move(_plan(there, home), home)
    assert not home.secrets.exists()
    assert home.agents_json.read_text() == '[{"name": "main"}]'


# -- each product ----------------------------------------------------------------------------------


def test_openclaw_comes_with_accounts_people_schedules_and_chats(
    tmp_path: Path, home: Home
) -> None:
    plan = _plan(openclaw_home(tmp_path / "there"), home)
    apply_move(plan, home)
    entries = _entries(home)
    main, work = entries["main"], entries["work"]
    assert main["nickname"] == "Sam"
    assert main["allowed_user_ids"] == [PERSON, 77]
    assert work["allowed_user_ids"] == [5], "who was let in at one account is not at another"
    assert (main["provider"], main["model"]) == ("anthropic", "claude-sonnet-4-5")
    assert main["fallback_model"] == "gpt-5.2"
    assert (home.root / "secrets/anthropic.key").read_text() == f"{KEY}\n"
    assert main["prompt"].startswith("You are calm.\n\nName: Sam")
    assert (home.root / "agents/main/MEMORY.md").read_text().startswith("Anna, who likes tea.")
    tasks = {
        row["name"]: row
        for row in _rows(home, "SELECT * FROM tasks JOIN schedules USING (task_id)")
    }
    assert tasks["Morning brief"]["spec"] == "0 7 * * *"
    assert tasks["Morning brief"]["zone"] == "America/Los_Angeles"
    assert json.loads(tasks["Morning brief"]["deliver_to"])["conversation"] == "-1001234/9"
    assert tasks["Often"]["is_paused"] == 1
    assert tasks["Often"]["next_at"] is None
    chats = _rows(home, "SELECT key, role, text FROM sessions JOIN transcript USING (session_id)")
    assert [(row["key"], row["role"], row["text"]) for row in chats] == [
        (f"chat:telegram:{PERSON}", "user", "hello from the phone"),
        (f"chat:telegram:{PERSON}", "assistant", "good day"),
    ]
    read = (home.root / "agents/main/workspace/moved/chats/agent-main-main.md").read_text()
    assert "# at home" in read
    memory = _rows(home, "SELECT key, scope, shared_by, content FROM memories")
    assert [(m["scope"], m["shared_by"], m["content"]) for m in memory] == [
        ("agent", "operator", "We bought flour.")
    ]
    why = {remark.what: remark.why for remark in plan.remarks}
    assert "main: schedule Past" in why
    assert "main: @anna" in why
    assert "channel discord" in why


def test_openclaw_since_sqlite_is_read_too(tmp_path: Path, home: Home) -> None:
    apply_move(_plan(openclaw_sqlite_home(tmp_path), home), home)
    assert _entries(home)["main"]["allowed_user_ids"] == [PERSON]
    assert _entries(home)["main"]["engine_options"]["base_url"] == "http://127.0.0.1:11434/v1"
    said = _rows(home, "SELECT text FROM transcript ORDER BY entry_id")
    assert [row["text"] for row in said] == ["hello", "good day"]
    assert _rows(home, "SELECT key FROM sessions") == [{"key": f"chat:telegram:{PERSON}"}]
    jobs = _rows(home, "SELECT name, is_paused FROM tasks JOIN schedules USING (task_id)")
    assert jobs == [{"name": "Brief", "is_paused": 1}]


def test_sygen_comes_with_its_agents(tmp_path: Path, home: Home) -> None:
    plan = _plan(sygen_home(tmp_path / "there"), home)
    apply_move(plan, home)
    entries = _entries(home)
    assert list(entries) == ["main", "cook", "scribe"]
    assert {each["engine"] for each in entries.values()} == {"claude"}
    assert (entries["main"]["model"], entries["cook"]["model"]) == ("sonnet", "opus")
    assert entries["scribe"]["transports"] == ["matrix"]
    assert entries["scribe"]["matrix"]["allowed_rooms"] == ["!abc:matrix.example"]
    assert "permission_mode" not in entries["main"]
    tasks = {
        row["name"]: row
        for row in _rows(home, "SELECT * FROM tasks JOIN schedules USING (task_id)")
    }
    assert "Look at the notes." in tasks["Off"]["prompt"]
    assert tasks["Off"]["is_paused"] == 1
    tools = home.root / "agents/cook/workspace/tools"
    assert "theirs" not in (tools / "agent_tools/ask_agent.py").read_text()
    assert (tools / "agentsup_tools.py").is_file()
    script = home.root / "agents/main/workspace/tools/user_tools/weather.py"
    assert stat.S_IMODE(script.stat().st_mode) == 0o700
    assert home.shared_memory.read_text() == "All know the house.\n"
    what = {remark.what for remark in plan.remarks}
    assert {"chats", "webhooks.json", ".env: WEATHER_API_KEY", "main: docker"} <= what


def test_hermes_comes_with_profiles_and_memories(tmp_path: Path, home: Home) -> None:
    apply_move(_plan(hermes_home(tmp_path / "there"), home), home)
    entries = _entries(home)
    assert list(entries) == ["main", "coder"]
    assert entries["main"]["model"] == "anthropic/claude-opus-4.6"
    assert entries["main"]["engine_options"]["base_url"] == "https://openrouter.ai/api/v1"
    assert entries["main"]["max_steps"] == 90
    keys = {row["key"] for row in _rows(home, "SELECT key FROM memories")}
    assert keys == {"The project uses pnpm.", "The server is in Graz."}
    assert (home.root / "agents/main/workspace/skills/tea/SKILL.md").is_file()
    tasks = {
        row["name"]: row
        for row in _rows(home, "SELECT * FROM tasks JOIN schedules USING (task_id)")
    }
    assert set(tasks) == {"Daily", "Poll"}
    assert (tasks["Poll"]["kind"], float(tasks["Poll"]["spec"])) == ("every", 1800.0)
    assert tasks["Daily"]["prompt"].startswith("Use the skills tea.")
    said = _rows(home, "SELECT key, text FROM sessions JOIN transcript USING (session_id)")
    assert [row["text"] for row in said] == ["is there tea?", "there is"], "the latest goes on"
    read = (home.root / "agents/main/workspace/moved/chats").iterdir()
    assert {path.name for path in read} == {"cli-c1.md", "telegram-t0.md"}


def test_nanobot_comes_with_its_workspace(tmp_path: Path, home: Home) -> None:
    apply_move(_plan(nanobot_home(tmp_path / "there"), home), home)
    main = _entries(home)["main"]
    assert main["model"] == "anthropic/claude-opus-4-5"
    assert main["engine_options"]["api_key"] == "file:secrets/openrouter.key"
    assert main["allowed_user_ids"] == [PERSON, 77]
    assert not (home.root / "agents/main/workspace/.nanobot").exists()
    assert main["matrix"]["password"] == "file:secrets/main-matrix-password.secret"
    assert (home.root / "agents/main/workspace/notes/list.txt").read_text() == "milk"
    assert "We chose blue." in (home.root / "agents/main/workspace/moved/history.md").read_text()
    assert [row["name"] for row in _rows(home, "SELECT name FROM tasks")] == ["water"]


# -- what is here stays ----------------------------------------------------------------------------


def test_what_is_here_stays(tmp_path: Path, home: Home) -> None:
    home.create()
    put(
        home.root,
        "agents.json",
        '[{"name": "main", "prompt": "mine", "model": "own"}, {"name": "work"}]',
    )
    put(home.root, "agents/main/MEMORY.md", "mine")
    plan = _plan(openclaw_home(tmp_path / "there"), home)
    apply_move(plan, home)
    entries = {each["name"]: each for each in json.loads(home.agents_json.read_text())}
    assert (entries["main"]["prompt"], entries["main"]["model"]) == ("mine", "own")
    assert "engine_options" not in entries["main"], "a model and its address belong together"
    assert entries["main"]["telegram_token"] == "file:secrets/main-telegram.token"
    assert entries["work"] == {"name": "work"}
    assert (home.root / "agents/main/MEMORY.md").read_text() == "mine"
    assert not (home.root / "secrets/work-telegram.token").exists()
    what = {remark.what for remark in plan.remarks}
    assert {"main: prompt", "work: its entry"} <= what


# -- hostile homes ---------------------------------------------------------------------------------


def test_links_and_pipes_are_not_followed(tmp_path: Path, home: Home) -> None:
    there = openclaw_home(tmp_path / "there")
    outside = put(tmp_path, "outside/secret.md", "the neighbour's")
    (there / "workspace/link.md").symlink_to(outside)
    (there / "workspace/folder").symlink_to(outside.parent)
    (there / "workspace/MEMORY.md").unlink()
    (there / "workspace/MEMORY.md").symlink_to(outside)
    os.mkfifo(there / "workspace/pipe")
    plan = _plan(there, home)
    assert not any(b"neighbour" in data for data in plan.files.values())
    assert any(remark.why == "links and special files are not followed" for remark in plan.remarks)


def test_a_link_here_is_not_written_through(tmp_path: Path, home: Home) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    home.create()
    put(home.root, "agents.json", '[{"name": "main"}]')
    (home.root / "agents/main").symlink_to(outside)
    with pytest.raises(
        CommandFailed, match="main can't be used: Not a directory; nothing was changed"
    ):
        apply_move(_plan(nanobot_home(tmp_path / "there"), home), home)
    assert list(outside.iterdir()) == []


def test_names_that_lead_out_are_no_names(tmp_path: Path, home: Home) -> None:
    there = sygen_home(tmp_path / "there")
    entries = [{"name": "../../x"}, {"name": ".."}, {"name": "a b"}]
    put(there, "agents.json", entries)
    put(
        there,
        "cron_jobs.json",
        {"jobs": [{"id": "x", "schedule": "* * * * *", "task_folder": "../.."}]},
    )
    plan = _plan(there, home)
    assert all(".." not in Path(path).parts for path in plan.files)
    assert len(plan.fields) == 4
    assert not any(name_problem(name) for name in plan.fields)
    apply_move(plan, home)
    assert not [one for one in validate(home) if one.is_error]


@pytest.mark.parametrize(
    "text",
    ["{", '{"agents": ', "[" * 5000, "{a: &x [1], b: *x}", "{agents: 12, channels: [1]}", "\0\0"],
)
def test_a_broken_configuration_is_told(tmp_path: Path, home: Home, text: str) -> None:
    there = put(tmp_path, "there/openclaw.json", text).parent
    put(there, "cron/jobs.json", text)
    plan = _plan(there, home, "openclaw")
    assert [agent.name for agent in plan.found.agents] == ["main"]


def test_yaml_is_read_without_tags_and_aliases(tmp_path: Path) -> None:
    put(tmp_path, "a.yaml", "a: &x [1]\nb: *x\n")
    put(tmp_path, "b.yaml", "!!python/object/apply:os.system ['true']\n")
    source = SourceFolder(tmp_path)
    assert source.yaml("a.yaml") is None
    assert source.yaml("b.yaml") is None
    assert set(source.skipped) == {"a.yaml", "b.yaml"}


def test_a_database_that_never_ends_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentsup.store.peek._MOST_ASKED", 10)
    with closing(sqlite3.connect(tmp_path / "x.db")) as database, database:
        database.execute(
            "CREATE VIEW messages AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
            " SELECT sum(x) AS x FROM n"
        )
    source = SourceFolder(tmp_path)
    assert source.rows("x.db", "SELECT * FROM messages") == []
    assert "interrupted" in source.skipped["x.db"]


def test_too_large_a_file_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "long.md", "x" * 100)
    source = SourceFolder(tmp_path)
    assert source.data("long.md", 99) is None
    assert "99 are read at most" in source.skipped["long.md"]


def test_what_a_database_makes_up_has_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentsup.store.peek._MOST_IN_ALL", 1000)
    with closing(sqlite3.connect(tmp_path / "x.db")) as database, database:
        database.execute(
            "CREATE VIEW endless AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
            " SELECT printf('%0100d', x) AS text FROM n"
        )
    source = SourceFolder(tmp_path)
    assert len(source.rows("x.db", "SELECT * FROM endless")) == 10
    assert len(source.rows("x.db", "SELECT * FROM endless", 3)) == 3


def test_files_have_a_limit_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentsup.cli.moving.source.MAX_IN_ALL", 150)
    for name in ("a.md", "b.md"):
        put(tmp_path, name, "x" * 100)
    source = SourceFolder(tmp_path)
    assert (source.text("a.md"), source.text("b.md")) == ("x" * 100, "")
    assert "150 bytes in all" in source.skipped["b.md"]


def test_two_agents_with_one_bot_are_told_before_anything_is_written(
    tmp_path: Path, home: Home
) -> None:
    there = sygen_home(tmp_path / "there")
    entry = {"name": "cook", "telegram_token": TOKEN, "allowed_user_ids": ["no number"]}
    put(there, "agents.json", [entry])
    with pytest.raises(CommandFailed, match="would not be right with this"):
        check_plan(_plan(there, home), home)
    with pytest.raises(CommandFailed, match="would not be right"):
        apply_move(_plan(there, home), home)
    assert not home.root.exists()


def test_keys_of_a_workspace_stay_there(tmp_path: Path, home: Home) -> None:
    there = nanobot_home(tmp_path / "there")
    put(there, "workspace/.env", "A_KEY=hidden-from-everybody")
    plan = _plan(there, home)
    assert not any(path.endswith(".env") for path in plan.files)


# -- which product ---------------------------------------------------------------------------------


def test_the_product_is_found_or_asked_for(there: Path, tmp_path: Path, home: Home) -> None:
    assert _plan(there, home).found.product in ("sygen", "openclaw", "hermes", "nanobot")
    wrong = {"sygen": "hermes"}.get(_plan(there, home).found.product, "sygen")
    with pytest.raises(CommandFailed, match=f"is no home of {wrong}: it looks like"):
        _plan(there, home, wrong)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(CommandFailed, match=r"no known file lies there; say which with --from"):
        _plan(empty, home)
    with pytest.raises(CommandFailed, match="is no folder"):
        SourceFolder(put(tmp_path, "file", "x"))


def test_two_products_in_one_folder_must_be_told_apart(tmp_path: Path, home: Home) -> None:
    hermes_home(openclaw_home(tmp_path / "there"))
    with pytest.raises(CommandFailed, match="openclaw or hermes; say which"):
        _plan(tmp_path / "there", home)
    assert _plan(tmp_path / "there", home, "hermes").found.product == "hermes"


def test_setup_names_the_homes_that_are_there(tmp_path: Path) -> None:
    (tmp_path / ".openclaw").mkdir()
    put(tmp_path, ".hermes", "a file")
    assert other_homes(tmp_path) == ["~/.openclaw"]


def test_lines_are_broken_where_a_terminal_is_narrow(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CommandOutput, "width", 40)
    there = hermes_home(tmp_path / "there")
    done = CliRunner().invoke(app, ["--home", str(home.root), "import", str(there)])
    lines = done.output.splitlines()
    assert [line for line in lines if len(line) > 40 and str(tmp_path) not in line] == []
    assert any(line.startswith("    ") for line in lines)
    assert {"  1 chat that goes on", "  2 memories"} <= set(lines)


# -- values ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, value",
    [
        (
            "{a: 1, 'b': [1, 2,], /* no */ \"c\": 'it\\'s', // end\n}",
            {"a": 1, "b": [1, 2], "c": "it's"},
        ),
        ("[+1, -.5, 0x1F, 1e3, true, null]", [1, -0.5, 31, 1000.0, True, None]),
        ("'a\\\nb\\u0041\\x42'", "abAB"),
        ('{"a": {}}', {"a": {}}),
    ],
)
def test_json5_as_people_write_it(text: str, value: object) -> None:
    assert parse_json5(text) == value


@pytest.mark.parametrize(
    "text", ["", "{a 1}", "{a: }", "[1 2]", "'a", "{a: 1} b", "{'a': \\x}", "[" * 100]
)
def test_wrong_json5_names_its_line(text: str) -> None:
    with pytest.raises(BadJson5, match="line 1"):
        parse_json5(text)


def test_values_of_others() -> None:
    assert variables("export A='x # y'\nB=1 # no\nC=\n#D=1\nwrong line\n") == {
        "A": "x # y",
        "B": "1",
    }
    assert text_of("\ud83d\ude00\ud800\0") == "\U0001f600\ufffd"
    assert chat_of("telegram", "telegram:group:-100:topic:5") == ("telegram", "-100/5")
    assert chat_of("telegram", "@name") == ("", "")
    assert chat_of("matrix", "!a:b") == ("matrix", "!a:b")
    long = memories_of("# One\n\n" + "word " * 2000 + "\n\n# Two\n\nshort", "file", "tag")
    assert len(long) >= 3
    assert len({each.key for each in long}) == len(long)
    assert all(len(each.content) <= 4000 for each in long)


def test_a_file_of_headings_alone_brings_no_more_than_is_taken() -> None:
    found = memories_of("# a\n\nb\n\n" * 20_000, "file", "tag")
    assert len(found) == MOST_MEMORIES
    assert len({each.key for each in found}) == MOST_MEMORIES


def test_the_head_of_a_skill_is_read_without_aliases() -> None:
    """Merged again and again, they make a list that has no room anywhere."""
    merged = "".join(f"k{n}: &k{n} {{<<: [*k{n - 1}, *k{n - 1}]}}\n" for n in range(1, 5))
    skill = skill_of("mine", f"---\nname: theirs\nk0: &k0 {{a: 1}}\n{merged}---\ntext")
    assert skill is not None
    assert skill.name == "mine"
