"""Scripts: every mistake is named with its line, rule and step."""

from __future__ import annotations

import json

import pytest

from agentsup.engines.scripted.script import (
    MAX_SCRIPT_BYTES,
    STEPS,
    fill,
    parse_script,
    steps_from_data,
    steps_to_data,
)
from agentsup.model.errors import ConfigError

GOOD = r"""
- match: 'say (.*) to (\w+)'
  steps:
    - say: "$2, $1"
    - stream: {chunks: [a, "$1", 3], every: 0.5}
    - sleep: $2
    - tool: {name: add, args: {a: [1, {b: $1}]}}
    - fail: no
    - trouble: {code: rate_limited, text: "wait, $1", retry_after: 3}
    - crash: no
    - exit: 42
    - hang: true
    - spawn: 3
    - question: {text: "sure?", options: [yes, no], timeout: 60}
    - file: out.txt
    - usage: {input: 1, output: 2, usd: 0.5}
    - effect: log/effects.txt
- match: .*
  steps: []
"""


def test_every_step_is_read() -> None:
    good = GOOD.replace("fail: no", "fail: 'no'").replace("crash: no", "crash: 'no'")
    good = good.replace("[yes, no]", "['yes', 'no']")
    script = parse_script(good, path="rules.yaml")
    steps, groups = script.find("say hello to Bob") or ((), ())
    assert tuple(step.kind for step in steps) == STEPS
    assert groups == ("say hello to Bob", "hello", "Bob")
    again = steps_from_data(json.loads(json.dumps(steps_to_data(steps))))
    assert again == steps


def test_the_first_rule_that_fits_the_whole_text_wins_and_a_dot_fits_newlines() -> None:
    script = parse_script(
        "- {match: 'a', steps: [say: one]}\n- {match: 'a.b', steps: [say: two]}", path="r"
    )
    assert script.find("ab") is None
    found = script.find("a\nb")
    assert found is not None
    assert found[0][0].say == "two"


def test_an_empty_script_has_no_rules() -> None:
    assert parse_script("", path="r").find("x") is None


@pytest.mark.parametrize(
    "source, line, field, words",
    [
        ("match: x", 1, None, "list of rules"),
        ("- match: x\n  steps: [", 2, None, "not valid YAML"),
        ("- match: 'a('\n  steps: []", 1, "rule 1, match", "not a regular expression"),
        ("- steps: []", 1, "rule 1, match", "match is missing"),
        ("- match: x\n  stepz: []\n  steps: []", 2, "rule 1, stepz", "unknown key 'stepz'"),
        (
            "- match: x\n  steps:\n  - say: a\n- match: y\n  steps:\n  - say: a\n  - sey: b",
            7,
            "rule 2, step 2, sey",
            "unknown key 'sey'",
        ),
        ("- match: x\n  steps:\n  - {say: a, fail: b}", 3, "rule 1, step 1", "here: fail, say"),
        ("- match: x\n  steps:\n  - {}", 3, "rule 1, step 1", "here: none"),
        ("- match: x\n  steps:\n  - say:", 3, "rule 1, step 1", "say has no value"),
        ("- match: x\n  steps:\n  - fail: no", 3, "rule 1, step 1, fail", "quotes"),
        ("- match: x\n  steps:\n  - sleep: -1", 3, "rule 1, step 1, sleep", "greater"),
        ("- match: x\n  steps:\n  - sleep: soon", 3, "rule 1, step 1, sleep", "seconds"),
        ("- match: x\n  steps:\n  - hang: false", 3, "rule 1, step 1, hang", "True"),
        (
            "- match: x\n  steps:\n  - tool: {args: {}}",
            3,
            "rule 1, step 1, tool.name",
            "name is missing",
        ),
        ("- match: x\n  steps:\n  - exit: soon", 3, "rule 1, step 1, exit", "integer"),
        ("- 7", 1, "rule 1", "dict"),
    ],
)
def test_mistakes_are_named_with_their_place(
    source: str, line: int, field: str | None, words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_script(source, path="rules.yaml")
    error = caught.value
    assert error.path == "rules.yaml"
    assert error.line == line, str(error)
    assert error.field == field, str(error)
    assert words in str(error)


@pytest.mark.parametrize(
    "source", [b"\xff\xfe\x00", b"a: b: c", b"- &a [*a]", b"\x00", b"!!python/object:os.system x"]
)
def test_junk_is_refused(source: bytes) -> None:
    with pytest.raises(ConfigError):
        parse_script(source, path="rules.yaml")


def test_a_huge_script_is_refused_unread() -> None:
    with pytest.raises(ConfigError, match="at most"):
        parse_script(" " * (MAX_SCRIPT_BYTES + 1), path="rules.yaml")


def test_fill_reaches_every_string_once() -> None:
    groups = ("all", "one", "$result")
    assert fill("$1 $2 $result $3 $10 $0 $$1 5$", groups, "R") == "one $result R $3 $10 all $one 5$"
    assert fill({"$1": ["$1", {"x": "$result"}], "n": 3, "b": None}, groups, "R") == {
        "$1": ["one", {"x": "R"}],
        "n": 3,
        "b": None,
    }
    assert fill("$results", groups, "R") == "$results"


def test_rules_for_a_turn_that_is_asked_once_more_come_first() -> None:
    script = parse_script(
        "[{match: '.*', steps: [say: one]}, {match: 'a.*', steps: [say: two], nudge: hint}]",
        path="rules.yaml",
    )

    def said(text: str, nudge: str = "") -> str | None:
        steps, _ = script.find(text, nudge) or ((), ())
        return steps[0].say

    assert [said("ab"), said("ab", "hint"), said("b", "hint"), said("ab", "wrap_up")] == [
        "one",
        "two",
        "one",
        "one",
    ]


def test_an_unknown_kind_of_failure_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"rule 1, step 1.*not a kind of failure"):
        parse_script("[{match: x, steps: [trouble: {code: odd}]}]", path="rules.yaml")
