"""Grants by pattern cover what begins with the pattern, and nothing else that a command line runs."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agentsup.agents.tools import exec_tool
from agentsup.agents.tools.exec.command_lines import of_own_call, of_script, of_words
from agentsup.approvals.patterns import covers, holds, offered
from tests.support.bound import BOUND_S

WS = "/home/u/ws"

EXAMPLES = int(os.environ.get("TEST_PATTERN_EXAMPLES", "150"))
RUNNING = ("make", "rm", "curl", "env", "xargs", "git", "tee", "python3", "npm", "ls")
"""Programs whose words a stand-in records."""
WORDS = st.sampled_from(
    [
        *RUNNING,
        *[
            "x",
            "-rf",
            "a=b",
            "-c",
            "sh",
            "eval",
            "exec",
            "test",
            "if",
            "then",
            "fi",
            "{",
            "}",
            "!",
            "do",
            "f()",
            "'make'",
            '"rm"',
            "ma\\ke",
        ],
        *["$(rm)", "`rm`", "${A}", "*", "~", "=", "A=rm", "--eval=x", "cd", ":", "alias", "."],
        *("make x", "git status"),
    ]
)
JOINS = st.sampled_from(
    [" "] * 3
    + [";", "&", "&&", "||", "|", "(", ")", ">", ">>", "<", "<<<", "<(", "#"]
    + ["\n", "\\\n"],
)
SCRIPTS = st.lists(st.tuples(WORDS, JOINS), min_size=1, max_size=7).map(
    lambda pairs: "".join(word + join for word, join in pairs)
)

NOT_PLAIN = (
    *(
        "ls; rm x",
        "ls && ls",
        "ls | cat",
        "ls > x",
        "(ls)",
        "ls $X",
        "ls '$X'",
        "ls `rm`",
        "ls <<X",
    ),
    *("ls\nrm x", "ls *", "ls {a,b}", "ls ~", "ls\0", "ls 'x", "ls ';' x", "A=rm ls", ". x"),
    *("sh x", "env ls", "ls\u00a0x", "", " "),
)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[list[str]]]:
    """Runs a script whose programs only write down their words; what they wrote."""
    folder = tmp_path_factory.mktemp("programs")
    log, places = folder / "log", folder / "bin"
    places.mkdir()
    for name in RUNNING:
        stand_in = places / name
        stand_in.write_text(
            # One write for each program: some run side by side.
            f'#!/bin/sh\nprintf "%s\\037" "{name}" "$@" "\036" >> {log}\n'
        )
        stand_in.chmod(0o755)

    def run(script: str) -> list[list[str]]:
        log.write_text("")
        work = folder / "work"
        work.mkdir(exist_ok=True)
        subprocess.run(
            ["/bin/sh", "-c", script],
            env={"PATH": str(places)},
            cwd=work,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=BOUND_S,
            check=False,
        )
        return [ran.split("\037") for ran in log.read_text().split("\037\036\037") if ran]

    return run


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@example("make x")
@example("ls '-la' \"x y\"")
@example("ls x; rm -rf x")
@example("alias ls=rm\nls x")
@example("make $(rm x)")
@example("make() { rm x; }; make y")
@example("A=rm make x")
@given(script=SCRIPTS)
def test_a_pattern_never_covers_what_runs_anything_else(recorded: Any, script: str) -> None:
    lines = of_script(script)
    for pattern in ("ls *", "tee *", "git status *", "make x", "make", "rm"):
        if covers(pattern, lines):
            prefix = pattern.removesuffix(" *").split(" ")
            ran = recorded(script)
            rest = slice(len(prefix)) if pattern.endswith(" *") else slice(None)
            assert all(words[rest] == prefix for words in ran), (pattern, ran)


@given(words=st.lists(st.text(max_size=6) | WORDS, min_size=1, max_size=5))
def test_what_is_offered_covers_its_own_call_and_is_plain(words: list[str]) -> None:
    lines = of_words(words)
    for pattern in offered(lines):
        assert covers(pattern, lines)
        assert pattern.isascii()
        assert pattern.isprintable()
        assert len(pattern) <= 40
        assert not covers(pattern, [*lines, ("another", "-rf")])


@pytest.mark.parametrize(
    "words, patterns",
    [
        (["ls", "-la"], ["ls *"]),
        (["git", "status", "-s"], ["git status *"]),
        (["cat", f"{WS}/src/x"], ["cat *"]),
        # What may lie outside the workspace is told exactly.
        (["cat", "/etc/passwd"], ["cat /etc/passwd"]),
        (["rm", "-rf", "a/../../b"], ["rm -rf a/../../b"]),
        (["tee", "~/x"], ["tee '~/x'"]),
        (["cp", "--target-directory=/etc", "x"], ["cp --target-directory=/etc x"]),
        # What the workspace defines is run by plain words.
        (["make", "test"], ["make test", "make *"]),
        (["npm", "run", "build"], ["npm run build", "npm run *"]),
        (["make", "SHELL=x"], ["make SHELL=x"]),
        (["sh", "-c", "ls a"], []),
        (["python3", "-c", "print(1)"], ["python3 -c 'print(1)'"]),
        (["git", "-c", "alias.x=!rm", "x"], ["git -c 'alias.x=!rm' x"]),
        (["/tmp/ls"], []),
        (["env", "ls"], []),
        (["find", ".", "-exec", "rm", "{}", ";"], []),
        (["strace", "ls\u202e"], []),
        (["strace", "x" * 60], []),
    ],
)
def test_what_is_offered(words: list[str], patterns: list[str]) -> None:
    assert [*offered(of_words(words), WS)] == patterns


ADVERSARIAL = (
    *("make; id", "make | sh", "make $(id)", "make $X", "make\nid", "A=1 make x", "make CC=evil"),
    *(
        "make -C /tmp x",
        "make --eval=x",
        "make ../x",
        "make x:/y",
        "make @x",
        "make *",
        "make 'a b'",
    ),
    *("env make x", "sh -c 'make x'", "cd /tmp && make x", "./make x", "Make x", "make\u200bx"),
)


@pytest.mark.parametrize("script", ADVERSARIAL)
def test_nothing_but_plain_words_is_within_a_wide_pattern(script: str) -> None:
    assert not covers("make *", of_script(script), WS)
    assert not covers("make *", of_own_call({"command": script}), WS)
    shell = of_own_call({"command": ["bash", "-c", script]})
    assert not covers("make *", shell, WS)


@settings(max_examples=EXAMPLES, deadline=None)
@given(words=st.lists(st.text(max_size=8) | WORDS, max_size=4))
def test_a_wide_pattern_covers_plain_words_of_its_program_alone(words: list[str]) -> None:
    for prefix in (["make"], ["npm", "run"], ["cargo", "test"]):
        pattern = f"{' '.join(prefix)} *"
        if covers(pattern, of_words([*prefix, *words]), WS):
            for word in words:
                assert word.isascii()
                assert word[0].isalnum() or word[0] in "_."
                assert not set(word) & set(" =;&|<>()$`\\\"'*?[]{}~!#@\n\0")
                assert ".." not in word.split("/")
        assert not covers(pattern, of_words([*words, *prefix]) if words else (), WS) or (
            words[: len(prefix)] == prefix
        )


@pytest.mark.parametrize(
    "pattern, words",
    [
        ("make 'x y'", ["make", "x", "y"]),
        ("ls *", ["nice", "ls"]),
        ("git status *", ["git", "-c", "core.fsmonitor=rm", "status"]),
        ("ls *", ["sh", "-c", "ls x"]),
        ("ls *", []),
        ("*", ["rm"]),
    ],
)
def test_what_is_not_covered(pattern: str, words: list[str]) -> None:
    assert not covers(pattern, of_words(words))


@pytest.mark.parametrize("script", NOT_PLAIN)
def test_a_script_that_is_not_one_plain_command_of_words_has_no_pattern(script: str) -> None:
    assert of_script(script) == ()


RUN_OTHERS = (
    "strace -f|gdb -ex|git -c|git push|pip install|python3 x.py|sort --x|tar -x|ssh x|xargs ls"
)


@pytest.mark.parametrize("line", RUN_OTHERS.split("|"))
def test_no_program_that_runs_others_has_leave_for_whatever_its_words_say(line: str) -> None:
    """Of a grant of a time when there was such a pattern nothing is left, either."""
    words = line.split()
    assert not any(each.endswith(" *") for each in offered((tuple(words),)))
    for pattern in (f"{words[0]} *", f"{' '.join(words[:2])} *"):
        assert not covers(pattern, [words])
        assert not holds(pattern)


def test_calls_of_coding_agents_are_told_by_what_is_known_alone() -> None:
    script = "make 'a b' --x=y"
    expected = (("make", "a b", "--x=y"),)
    assert of_own_call({"command": script, "description": "x"}) == expected
    assert of_own_call({"command": ["bash", "-lc", script]}) == expected
    assert of_own_call({"command": ["make", "a b", "--x=y"]}) == expected
    assert of_own_call({"command": ["bash", "-lc", script, "more"]}) == ()
    extra: tuple[dict[str, Any], ...] = (
        {"workdir": "/"},
        {"cmd": "rm"},
        {"env": {}},
        {"dangerouslyDisableSandbox": True},
    )
    for more in extra:
        assert of_own_call({"command": script, **more}) == ()
    assert of_own_call({"command": 5}) == ()
    reads = exec_tool(dict).commands
    assert reads is not None
    assert reads({"command": shlex.join(["make", "a b"])}) == (("make", "a b"),)
    for args in ({"command": "make x; rm y"}, {"command": "'"}, {}):
        assert reads(args) == ()
