"""Grants by pattern cover what begins with the pattern, and nothing else that a command line runs."""

import os
import shlex
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agentsup.agents.tools.command_lines import of_own_call, of_script, of_words
from agentsup.agents.tools.shell import exec_tool
from agentsup.approvals.patterns import covers, holds, offered

EXAMPLES = int(os.environ.get("AGENTSUP_PATTERN_EXAMPLES", "150"))
RUNNING = ("make", "rm", "curl", "env", "xargs", "git", "tee", "python3", "npm", "ls")
"""Programs whose words a stand-in records."""
WORDS = st.sampled_from(
    [
        *RUNNING,
        *("x", "-rf", "-j4", "a=b", "-c", "sh", "bash", "eval", "exec", "command", "test", "if"),
        *(
            "then",
            "fi",
            "{",
            "}",
            "!",
            "do",
            "done",
            "for",
            "in",
            "f()",
            "function",
            "case",
            "esac",
        ),
        *(
            "'make'",
            '"rm"',
            "ma\\ke",
            "$(rm)",
            "`rm`",
            "${A}",
            "$A",
            "*",
            "~",
            "=",
            "A=rm",
            "--eval=x",
        ),
        *(
            "make",
            "make x",
            "make -j4 test",
            "ls x",
            "git status",
            "cd",
            "true",
            ":",
            "alias",
            "source",
            ".",
        ),
    ]
)
JOINS = st.sampled_from(
    [
        " ",
        " ",
        " ",
        ";",
        "\n",
        "&",
        "&&",
        "||",
        "|",
        "(",
        ")",
        ">",
        ">>",
        "<",
        "<<<",
        "<(",
        "#",
        "\\\n",
    ]
)
SCRIPTS = st.lists(st.tuples(WORDS, JOINS), min_size=1, max_size=7).map(
    lambda pairs: "".join(word + join for word, join in pairs)
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
            f'#!/bin/sh\nfor word in "{name}" "$@"; do printf "%s\\037" "$word" >> {log}; done\n'
            f'printf "\\n" >> {log}\n'
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
            timeout=10,
            check=False,
        )
        return [line.split("\037") for line in log.read_text().split("\037\n") if line]

    return run


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@example("make x")
@example("ls -la x && ls y")
@example("ls x; rm -rf x")
@example("ls x > y")
@example("alias ls=rm\nls x")
@example("make x; rm -rf x")
@example("make x && rm x")
@example("make $(rm x)")
@example("make x | xargs rm")
@example("make x > y")
@example("f() { rm x; }; make f")
@example("make() { rm x; }; make y")
@example("alias make=rm\nmake x")
@example("A=rm make x")
@example("make x &\nrm x")
@example("eval make x")
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
    pattern = offered(lines)
    if pattern:
        assert covers(pattern, lines)
        assert pattern.isascii()
        assert pattern.isprintable()
        assert len(pattern) <= 40
        assert not covers(pattern, [*lines, ("another", "-rf")])


@pytest.mark.parametrize(
    "words, pattern",
    [
        (["ls", "-la"], "ls *"),
        (["cat", "a b"], "cat *"),
        (["git", "status", "-s"], "git status *"),
        (["git", "diff"], "git diff *"),
        (["sh", "-c", "ls a && ls b"], "ls *"),
        (["sh", "-c", "ls a; rm b"], ""),
        (["make", "-j4", "test"], "make -j4 test"),
        (["npm", "run", "build"], "npm run build"),
        (["uv", "run", "pytest", "-q"], "uv run pytest -q"),
        (["python3", "-c", "print(1)"], "python3 -c 'print(1)'"),
        (["git", "push", "origin", "main"], "git push origin main"),
        (["git", "config", "alias.x", "y"], ""),
        (["sh", "-c", "make a && make a"], "make a"),
        (["sh", "-c", "make a && make b"], ""),
        (["bash", "script.sh"], ""),
        (["git", "-c", "alias.x=!rm", "x"], ""),
        (["./make"], ""),
        (["/tmp/ls"], ""),
        (["env", "ls"], ""),
        (["timeout", "5", "ls"], ""),
        (["xargs", "ls"], ""),
        (["find", ".", "-exec", "rm", "{}", ";"], ""),
        (["strace", "*"], "strace '*'"),
        (["ls\u202e"], ""),
        (["strace", "ls\u202e"], ""),
        (["strace", "x\ny"], ""),
        (["strace", "x" * 60], ""),
    ],
)
def test_what_is_offered(words: list[str], pattern: str) -> None:
    assert offered(of_words(words)) == pattern


@pytest.mark.parametrize(
    "pattern, words",
    [
        ("make SHELL=/tmp/x", ["make", "SHELL=/tmp/x"]),
        ("make x", ["make", "x", "y"]),
        ("make 'x y'", ["make", "x", "y"]),
        ("ls *", ["lsx"]),
        ("ls *", ["LS"]),
        ("ls *", ["nice", "ls"]),
        ("git status *", ["git", "-C", "/", "status"]),
        ("git status *", ["git", "-c", "core.fsmonitor=rm", "status"]),
        ("ls *", ["sh", "-c", "ls x; rm -rf /"]),
        ("ls *", ["sh", "-c", "ls $X"]),
        ("ls *", ["sh", "-c", "ls *"]),
        ("ls *", ["sh", "-c", "ls x", "more"]),
        ("ls *", []),
        ("*", ["rm"]),
        ("make", ["make", "x"]),
    ],
)
def test_what_is_not_covered(pattern: str, words: list[str]) -> None:
    assert not covers(pattern, of_words(words))


RUN_OTHERS = """
    strace -f|rg --pre|gdb -ex|sqlite3 x|gcc -wrapper|ip netns|tcpdump -z|make -f|git -c|git config|git push
    git fetch|git clone|git grep|git rebase|git bisect|git difftool|git submodule|npm run|npm test|cargo build
    go test|pip install|python3 x.py|curl --engine|openssl engine|sort --compress-program|split --filter
    tar -x|zip -TT|man -P|find -exec|fd -x|less x|vim x|ftp x|telnet x|psql -c|mysql -e|nmap --script|ssh x
    rsync -e|docker run|kubectl get|systemctl status|journalctl -u|watch ls|xargs ls|env ls|sed x|awk x|perl x
    dc x|install --strip-program|wget --use-askpass|nm --plugin|exiftool -config|unknown-program x|tree -R
"""


@pytest.mark.parametrize("line", RUN_OTHERS.replace("\n", "|").split("|"))
def test_no_program_that_runs_others_has_leave_for_whatever_its_words_say(line: str) -> None:
    """Of a grant of a time when there was such a pattern nothing is left, either."""
    words = line.split()
    if not words:
        return
    assert not offered((tuple(words),)).endswith(" *")
    for pattern in (f"{words[0]} *", f"{' '.join(words[:2])} *"):
        assert not covers(pattern, [words])
        assert not holds(pattern)


def test_calls_of_coding_agents_are_told_by_what_is_known_alone() -> None:
    script = "make test && make lint"
    assert of_own_call({"command": script, "description": "x"}) == (
        ("make", "test"),
        ("make", "lint"),
    )
    assert of_own_call({"command": ["bash", "-lc", script]}) == (("make", "test"), ("make", "lint"))
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
