"""The file ``environment`` of the home: what its lines mean, and where ``env:NAME`` looks."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentsup.config import Home, environment_of, load, read_environment
from agentsup.config.home_environment import MAX_BYTES, parse_environment


def parsed(text: str) -> dict[str, str]:
    found = parse_environment(text, "environment")
    assert found.findings == ()
    return dict(found.values)


@pytest.mark.parametrize(
    "text, value",
    [
        ("A=1", "1"),
        ("A=1\r\n", "1"),
        ("  A = 1  ", "1"),
        ("A=", ""),
        ("A=a b  c ", "a b  c"),
        ('A=" a b "', " a b "),
        ("A=' $x \"y\" '", ' $x "y" '),
        ('A="a\\"b\\$c\\n"', 'a"b$c\\n'),
        ("A=a\\ b\\\\", "a b\\"),
        ("A=one \\\ntwo", "one two"),
        ('A="one\ntwo"', "one\ntwo"),
        ("A=a=b#c", "a=b#c"),
        ("A=it's", "it's"),
        ("A=1\nA=2", "2"),
        ("\ufeffA=1".removeprefix("\ufeff"), "1"),
        ("A=1\\", "1"),
    ],
)
def test_values_are_read_as_systemd_reads_them(text: str, value: str) -> None:
    assert parsed(text) == {"A": value}


def test_comments_and_empty_lines_are_skipped() -> None:
    assert parsed("# a\n\n; b\n  # c\nA=1\n") == {"A": "1"}


@pytest.mark.parametrize(
    "line, said",
    [
        ("nonsense", "this is not KEY=VALUE; the line is not used (write NAME=value)"),
        ("export A=1", "'export' belongs to a shell; the line is not used (write A=…)"),
        ("A-B=secret", "'A-B' is no name of a variable"),
        ('B="secret', 'the value of B has no closing "'),
        ("B=a\x01secret", "the value of B has a control character"),
        ("AGENTSUP_API__PORT=1", "AGENTSUP_API__PORT is not read from this file"),
    ],
)
def test_a_bad_line_is_a_warning_with_its_number_and_hides_no_other(line: str, said: str) -> None:
    found = parse_environment(f"A=1\n\n{line}\nC=3\n", "environment")
    assert found.values == {"A": "1", "C": "3"}
    [finding] = found.findings
    assert not finding.is_error
    assert str(finding).startswith("environment:3")
    assert said in str(finding)
    assert "secret" not in str(finding)


def test_the_number_of_warnings_is_bounded() -> None:
    assert len(parse_environment("x\n" * 5000, "environment").findings) == 20


def test_the_process_wins_unless_its_variable_is_empty(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.environment.write_text("A=file\nB=file\nC=file\n")
    assert environment_of(home, {"A": "process", "B": ""}) == {
        "A": "process",
        "B": "file",
        "C": "file",
    }


def test_a_file_that_cant_be_used_is_one_warning(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert read_environment(home).findings == ()
    home.environment.write_bytes(b"A=1\nB=\xff\n")
    [found] = read_environment(home).findings
    assert str(found) == "environment:2: the file is not UTF-8 text; none of its lines is used"
    home.environment.write_bytes(b"A" * (MAX_BYTES + 1))
    [found] = read_environment(home).findings
    assert "is larger than" in str(found)
    home.environment.unlink()
    home.environment.mkdir()
    [found] = read_environment(home).findings
    assert "can't be read" in str(found)


def test_a_reference_finds_its_variable_there_and_warnings_reach_the_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("A_BOT", raising=False)
    home = Home(tmp_path)
    home.config_toml.write_text('[main]\ntelegram_token = "env:A_BOT"\nallowed_user_ids = [1]\n')
    [found] = load(home).warnings
    assert "A_BOT is not set (put it into the file environment of the home" in str(found)
    home.environment.write_text("A_BOT=1234567:abcdefghijklmnopqrstuvwxyz012345678\nodd\n")
    snapshot = load(home)
    assert [str(each) for each in snapshot.warnings] == [
        "environment:2: this is not KEY=VALUE; the line is not used (write NAME=value)"
    ]


def test_values_that_sound_secret_are_known_for_redaction() -> None:
    found = parse_environment("AN_API_KEY=k\nBASE_URL=u\n", "environment")
    assert found.secrets == ("k",)
