"""An agent moves from one home to another beside their daemons; chats are written as texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.process.conftest import MakeDaemon
from tests.process.test_home_backup import good, run
from tests.support.preloaded_process import DAEMON

pytestmark = pytest.mark.process

RULES: list[dict[str, Any]] = [{"match": "(.+)", "steps": [{"say": "did *$1*"}]}]
WRITER: dict[str, Any] = {
    "name": "writer",
    "role": "poet",
    "description": "writes",
    "skills": ["verse", "The text of a skill."],
    "matrix": {
        "homeserver": "https://matrix.invalid",
        "user_id": "@w:matrix.invalid",
        "password": "hunter2",
    },
    "transports": ["console"],
}
SCOPES = ("instance", "global")


def memory(key: str, scope: str, person: str) -> dict[str, Any]:
    at = {"created_at": 1_000_000, "updated_at": 2_000_000}
    own = {"key": key, "content": f"{key} of {person}", "scope": scope, "person": person}
    return {**own, **at, "shared": scope != "instance", "pinned": key == "boat", "tags": ["x"]}


@pytest.mark.timeout(240)
async def test_an_agent_moves_with_all_that_is_its_own(
    make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    old = make_daemon(["main", WRITER], RULES, '[people.anna]\nrole = "user"\n', loaded=DAEMON)
    (old.home / "roles" / "poet").mkdir(parents=True)
    role = "---\nname: poet\n---\nVerse.\n"
    (old.home / "roles" / "poet" / "AGENT.md").write_text(role)
    (old.home / "skills").mkdir()
    (old.home / "skills" / "verse.md").write_text("how to write verse")
    (old.home / "skills" / "other.md").write_text("of another agent")
    await old.start()
    work = old.home / "agents" / "writer" / "workspace"
    (work / "skills").mkdir()
    (work / "skills" / "rhyme.md").write_text("heart, part")
    (work.parent / "MEMORY.md").write_text("likes bikes")
    (work.parent / "engine-home").mkdir(exist_ok=True)
    (work.parent / "engine-home" / "login").write_text("hunter3")
    people = ("operator", "person:anna", "person:ben")
    given = [
        memory(key, scope, person)
        for key in ("boat", "tea")
        for scope in SCOPES
        for person in people
    ]
    path = "/agents/writer/memory"
    assert (await old.post(f"{path}/import", {"memories": given})).status == 200

    file = tmp_path / "writer.tar.gz"
    said = good(old.home, "export", "agent", "writer", str(file))
    assert "12 memories" in said
    assert "file:secrets/writer-password" in said
    assert "hunter2" not in said

    new = make_daemon(["main"], RULES, '[people.anna]\nrole = "user"\n', loaded=DAEMON)
    told = good(new.home, "import", str(file))
    assert "8 memories" in told
    assert "4 memories of people who are not in [people]" in told
    assert str(new.home / "secrets" / "writer-password") in told
    assert "Nothing was changed" in told
    # What it would run, and where keys would go, is seen before it is brought.
    assert '"password": "file:secrets/writer-password"' in told
    assert not (new.home / "agents" / "writer").exists()
    stopped = run(new.home, "import", str(file), "--apply")
    assert (stopped.returncode, "no daemon runs" in stopped.stderr) == (1, True)
    assert "writer" not in (new.home / "agents.json").read_text()
    await new.start()
    assert "poet2 is here, with 8 memories" in good(
        new.home, "import", str(file), "--as", "poet2", "--apply"
    )
    before = (await old.get(f"{path}?limit=500"))["memories"]
    after = (await new.get("/agents/poet2/memory?limit=500"))["memories"]
    told_of = ("key", "content", "scope", "person", "pinned", "tags", "created_at", "updated_at")

    def compared(found: list[dict[str, Any]]) -> list[tuple[str, ...]]:
        kept = [one for one in found if one["person"] != "ben"]
        return sorted(tuple(map(str, map(one.get, told_of))) for one in kept)

    assert compared(after) == compared(before)
    here = new.home / "agents" / "poet2"
    assert (here / "workspace" / "skills" / "rhyme.md").read_text() == "heart, part"
    assert (here / "MEMORY.md").read_text() == "likes bikes"
    assert not (here / "engine-home" / "login").exists()
    assert (new.home / "roles" / "poet" / "AGENT.md").read_text() == role
    assert [path.name for path in (new.home / "skills").iterdir()] == ["verse.md"]
    assert not (new.home / ".importing").exists()
    message_id = await new.send("poet2", "hello")
    assert (await new.result(message_id))["text"] == "did *hello*"

    again = run(new.home, "import", str(file), "--as", "poet2", "--apply")
    assert (again.returncode, "Nothing was changed" in again.stderr) == (1, True)
    whole = run(new.home, "restore", str(file))
    assert (whole.returncode, " import" in whole.stderr) == (1, True)


@pytest.mark.timeout(180)
async def test_an_import_that_the_files_refuse_leaves_nothing(
    make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    old = make_daemon(["main", {"name": "writer", "can_delegate_to": ["main"]}], RULES)
    await old.start()
    file = tmp_path / "writer.tar.gz"
    good(old.home, "export", "agent", "writer", str(file))
    before = (old.home / "agents.json").read_bytes()
    (old.home / "agents.json").write_bytes(b"[")
    refused = run(old.home, "import", str(file), "--as", "poet", "--apply")
    assert refused.returncode == 1
    assert not (old.home / "agents" / "poet").exists()
    assert not (old.home / ".importing").exists()
    (old.home / "agents.json").write_bytes(before)
    unknown = run(old.home, "export", "agent", "writter", str(tmp_path / "x"))
    assert (unknown.returncode, "did you mean 'writer'" in unknown.stderr) == (1, True)


@pytest.mark.timeout(180)
async def test_chats_are_written_as_markdown_and_json(
    make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    daemon = make_daemon(["main", "writer"], RULES, loaded=DAEMON)
    await daemon.start()
    for agent, text in (("main", "tea"), ("main", "bike"), ("writer", "verse")):
        chat = await daemon.chat(agent)
        await chat.ask(text)
    file = tmp_path / "chats.json"
    assert "with 2 chats" in good(daemon.home, "export", "chats", str(file))
    document = json.loads(file.read_text())
    chats = {one["agent"]: one for one in document["chats"]}
    assert chats["main"]["channel"] == "console"
    assert [(e["role"], e["text"]) for e in chats["main"]["entries"]] == [
        ("user", "tea"),
        ("assistant", "did *tea*"),
        ("user", "bike"),
        ("assistant", "did *bike*"),
    ]
    assert file.stat().st_mode & 0o777 == 0o600
    text = good(daemon.home, "export", "chats", "--agent", "writer")
    assert "# writer" in text
    assert "did *verse*" in text
    assert "tea" not in text
    place = f"console:{chats['main']['conversation']}"
    assert "did *tea*" in good(daemon.home, "export", "chats", "--conversation", place)
    assert run(daemon.home, "export", "chats", "--conversation", "web:nobody").returncode == 1
    assert run(daemon.home, "export", "chats", str(file)).returncode == 1
