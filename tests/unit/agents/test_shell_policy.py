"""Commands are refused by the name of their program, or a person is asked about them."""

from __future__ import annotations

from typing import Any

import pytest

from agentsup.agents.tools.exec import command_lines
from agentsup.agents.tools.exec.tool import exec_tool, words_of
from agentsup.agents.turn.own_calls import classify
from agentsup.approvals.patterns import offered
from agentsup.model.errors import BadRequest
from agentsup.model.tool import Safety


@pytest.mark.parametrize(
    "argv",
    [
        ["sudo", "ls"],
        ["/usr/bin/../bin/SUDO", "ls"],
        ["mkfs.ext4", "/dev/sda1"],
        ["systemd-run", "--user", "cat", "x"],
        ["tmux", "new", "-d", "ls"],
        ["a\0b"],
        [""],
        [],
    ],
)
def test_a_program_of_the_list_is_refused(argv: list[str]) -> None:
    assert command_lines.problem(argv) is not None


@pytest.mark.parametrize(
    "argv",
    [
        ["git", "commit", "-m", "sudo is not needed"],
        ["rm", "-rf", "/"],
        ["env", "sudo", "ls"],
        ["sh", "-c", "true; sudo ls"],
        ["docker", "run", "-v", "/:/x", "alpine"],
        ["find", ".", "-exec", "sudo", "ls", ";"],
    ],
)
def test_whatever_else_a_command_says_a_person_is_asked(argv: list[str]) -> None:
    tool = exec_tool(dict)
    assert command_lines.problem(argv) is None
    assert tool.safety is Safety.DANGEROUS
    assert tool.commands is not None
    granted = offered(tool.commands({"argv": argv}), "/ws")
    assert argv[0] == "git" or not any(each.endswith(" *") for each in granted)


@pytest.mark.parametrize(
    "args, is_refused",
    [
        ({"command": "sudo ls && true"}, True),
        ({"command": ["bash", "-lc", "sudo ls"]}, True),
        ({"cmd": ["sudo", "ls"]}, True),
        ({"cmd": "sudo ls"}, True),
        ({"command": "ls", "script": "sudo ls"}, True),
        ({"command": "true && sudo ls"}, False),
        ({"command": ""}, False),
    ],
)
def test_own_calls_of_a_coding_agent_are_refused_or_asked(
    args: dict[str, Any], is_refused: bool
) -> None:
    found = classify("Bash", args, "/ws")
    assert (found.refused is not None, found.safety) == (is_refused, Safety.DANGEROUS)


@pytest.mark.parametrize("line", ["ls; rm x", "ls | cat", "ls > x", "ls &", "'", "", "ls\\"])
def test_a_command_line_has_no_shell(line: str) -> None:
    with pytest.raises(BadRequest):
        words_of({"command": line})


@pytest.mark.parametrize("argv", [[], "ls", [1], [""], ["x"] * 1001])
def test_words_are_words(argv: object) -> None:
    with pytest.raises(BadRequest):
        words_of({"argv": argv})


def test_a_line_is_split_as_a_shell_would() -> None:
    assert words_of({"command": "grep 'a b' \"c;d\" e\\ f"}) == ["grep", "a b", "c;d", "e f"]
