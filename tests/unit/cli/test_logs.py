"""The log as people read it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agentsup.cli.app import app
from agentsup.cli.commands import log_lines
from agentsup.cli.commands.log_lines import follow_log, tail_log, text_of
from agentsup.cli.connect.failure import CommandFailed
from agentsup.config import Home


def line(number: int, agent: str | None = None) -> str:
    facts = {"at": "2026-11-21T03:12:18.000Z", "level": "info", "event": f"event {number}"}
    return json.dumps({**facts, **({"agent": agent} if agent else {})})


def test_the_tail_reaches_into_rotated_pieces(tmp_path: Path) -> None:
    log = tmp_path / "agentsup.log"
    for name, numbers in (("agentsup.log.2", (1, 2)), ("agentsup.log.1", (3, 4)), (log.name, (5,))):
        (tmp_path / name).write_text("".join(line(n) + "\n" for n in numbers))
    (tmp_path / "agentsup.log.gz").write_text("no piece")
    assert tail_log(log, 4, None) == [line(n) for n in (2, 3, 4, 5)]
    assert len(tail_log(log, 99, None)) == 5
    assert tail_log(log, 0, None) == []


def test_a_log_that_can_not_be_read_is_told_in_one_sentence(home: Home) -> None:
    (home.logs / "agentsup.log").mkdir(parents=True)  # refuses a reader, also for root
    done = CliRunner().invoke(app, ["--home", str(home.root), "logs"])
    assert isinstance(done.exception, CommandFailed), done.exception
    assert str(home.logs / "agentsup.log") in str(done.exception)


def test_a_line_that_is_half_written_at_a_rotation_is_followed_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, old = tmp_path / "agentsup.log", tmp_path / "agentsup.log.1"
    log.write_text("")
    one, two = line(1), line(2)

    was_replaced = log_lines._was_replaced

    def rotated(path: Path, descriptor: int) -> bool:
        """The rest of the line is written between the look at the file and at its name."""
        if log.read_text() == one[:20]:
            log.rename(old)
            with old.open("a") as file:
                file.write(f"{one[20:]}\n")
            log.write_text(f"{two}\n")
        return was_replaced(path, descriptor)

    def pause(*_: object) -> None:
        if old.exists():
            raise KeyboardInterrupt
        log.write_text(one[:20])

    monkeypatch.setattr(log_lines, "_was_replaced", rotated)
    monkeypatch.setattr("select.select", pause)
    seen: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        follow_log(log, None, seen.append)
    assert seen == [one, two]


def test_the_tail_of_one_agent(tmp_path: Path) -> None:
    log = tmp_path / "agentsup.log"
    log.write_text(
        "\n".join([line(1, "main"), line(2, "writer"), "torn {", line(3, "Main")]) + "\n"
    )
    assert tail_log(log, 9, "main") == [line(1, "main"), line(3, "Main")]


def test_a_line_for_people() -> None:
    facts = {
        "at": "2026-11-21T03:12:18.000Z",
        "level": "warning",
        "event": "retry\x1b[2J",
        "agent": "main",
        "code": 7,
        "exception": "Traceback\n  boom",
    }
    text = text_of(json.dumps(facts), plain=True)
    assert text.split(" ", 2)[2] == "warning [main] retry·[2J code=7\nTraceback\n  boom"
    assert text_of("not json \x1b", plain=True) == "not json ·"
