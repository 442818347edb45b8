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
from agentsup.approvals.patterns import covers, offered

EXAMPLES = int(os.environ.get("AGENTSUP_PATTERN_EXAMPLES", "150"))
RUNNING = ("make", "rm", "curl", "env", "xargs", "git", "tee", "python3", "npm")
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
        *("make", "make x", "make -j4 test", "cd", "true", ":", "alias", "source", "."),
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
    for pattern in ("make *", "git status *", "npm run test *"):
        if covers(pattern, lines):
            prefix = pattern.split(" ")[:-1]
            ran = recorded(script)
            assert all(words[: len(prefix)] == prefix for words in ran), (pattern, ran)


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
        (["make", "-j4", "test"], "make *"),
        (["git", "status", "-s"], "git status *"),
        (["npm", "run", "build"], "npm run build *"),
        (["uv", "run", "pytest", "-q"], "uv run pytest *"),
        (["uv", "run", "python", "x.py"], "uv run python x.py *"),
        (["python3", "manage.py", "migrate"], "python3 manage.py *"),
        (["sh", "-c", "make a && make b"], "make *"),
        (["sh", "-c", "make a; rm b"], ""),
        (["bash", "script.sh"], ""),
        (["uv", "run", "bash", "x"], ""),
        (["python3", "-c", "print(1)"], ""),
        (["python3", "-m", "x.y"], ""),
        (["git", "-c", "alias.x=!rm", "x"], ""),
        (["git"], ""),
        (["./make"], ""),
        (["/tmp/make"], ""),
        (["env", "make"], ""),
        (["timeout", "5", "make"], ""),
        (["xargs", "make"], ""),
        (["find", ".", "-exec", "rm", "{}", ";"], ""),
        (["awk", "BEGIN{}"], ""),
        (["ssh", "host", "make"], ""),
        (["docker", "run", "x"], ""),
        (["make\u202e"], ""),
        (["x" * 60], ""),
    ],
)
def test_what_is_offered(words: list[str], pattern: str) -> None:
    assert offered(of_words(words)) == pattern


@pytest.mark.parametrize(
    "pattern, words",
    [
        ("make *", ["make", "SHELL=/tmp/x", "all"]),
        ("make *", ["make", "--eval=x:;rm"]),
        ("make *", ["make", "CC=rm", "all"]),
        ("make *", ["make", "-f", "-"]),
        ("make *", ["makex"]),
        ("make *", ["MAKE"]),
        ("make *", ["nice", "make"]),
        ("git fetch *", ["git", "fetch", "--upload-pack=rm"]),
        ("git fetch *", ["git", "fetch", "ext::rm"]),
        ("tar *", ["tar", "-xf", "a", "--to-command=rm"]),
        ("rsync *", ["rsync", "-e", "rm", "a", "b"]),
        ("git status *", ["git", "-C", "/", "status"]),
        ("make *", ["sh", "-c", "make x; rm -rf /"]),
        ("make *", ["sh", "-c", "make $X"]),
        ("make *", ["sh", "-c", "make *"]),
        ("make *", ["sh", "-c", "make x", "more"]),
        ("make *", []),
        ("*", ["rm"]),
        ("make", ["make"]),
    ],
)
def test_what_is_not_covered(pattern: str, words: list[str]) -> None:
    assert not covers(pattern, of_words(words))


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
