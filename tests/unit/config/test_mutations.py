"""A thousand damaged files: each is read, or refused with every finding placed; nothing else."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Any

import pytest

from agentsup.config.agents_file import AgentsFile, parse_agents
from agentsup.config.entry import AgentEntry
from agentsup.model.errors import ConfigError, ConfigErrors
from agentsup.model.name import name_problem

Entries = list[dict[str, Any]]
Mutation = Callable[[random.Random, Entries], bytes]


def healthy(chance: random.Random) -> Entries:
    """Some entries that load."""
    return [
        {
            "name": f"agent-{index}",
            "description": 'äöü 😀 \\ " quoted',
            "engine": chance.choice(["auto", "llm", "scripted"]),
            "telegram_token": f"{index}:token-{index}",
            "allowed_user_ids": [index, index + 1],
            "slots": {"interactive": 2, "peer": chance.randint(1, 4)},
            "matrix": {"user_id": f"@a{index}:example.org", "homeserver": "https://example.org"},
            "engine_options": {"script": "file:rules.yaml", "nested": {"list": [1, None, 2.5]}},
        }
        for index in range(chance.randint(1, 4))
    ]


def write(chance: random.Random, entries: Entries) -> str:
    indent = chance.choice([None, 1, 2, 4])
    return json.dumps(entries, indent=indent, ensure_ascii=chance.random() < 0.5)


def half_saved(chance: random.Random, entries: Entries) -> bytes:
    data = write(chance, entries).encode()
    return data[: chance.randrange(len(data))]


def byte_order_mark(chance: random.Random, entries: Entries) -> bytes:
    mark = chance.choice([b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf\xef\xbb\xbf"])
    return mark + write(chance, entries).encode()


def line_ends(chance: random.Random, entries: Entries) -> bytes:
    text = json.dumps(entries, indent=1)
    return text.replace("\n", chance.choice(["\r\n", "\r", "\n\n", "\u2028", "\t\n"])).encode()


def doubled_name(chance: random.Random, entries: Entries) -> bytes:
    copy = dict(chance.choice(entries))
    copy["name"] = chance.choice([copy["name"], copy["name"].upper(), copy["name"].title()])
    entries.insert(chance.randrange(len(entries) + 1), copy)
    return write(chance, entries).encode()


def unknown_key(chance: random.Random, entries: Entries) -> bytes:
    key = list(chance.choice(list(AgentEntry.model_fields)))
    chance.shuffle(key)
    holder = chance.choice(entries)
    holder = chance.choice([holder, holder["slots"], holder["matrix"]])
    holder["x" + "".join(key) + "_"] = chance.choice([1, "x", None, [], {}])
    return write(chance, entries).encode()


WRONG: list[Any] = [
    None,
    True,
    False,
    -1,
    0,
    1.5,
    10**30,
    "",
    "x",
    "\n",
    [],
    [[]],
    {},
    {"a": {}},
    [None],
    "\x7f",
]


def wrong_type(chance: random.Random, entries: Entries) -> bytes:
    holder = chance.choice(entries)
    holder = chance.choice([holder, holder["slots"], holder["matrix"]])
    for key in chance.sample(sorted(holder), k=chance.randint(1, len(holder))):
        holder[key] = chance.choice(WRONG)
    extra = chance.choice(list(AgentEntry.model_fields))
    chance.choice(entries)[extra] = chance.choice(WRONG)
    return write(chance, entries).encode()


def traversal(chance: random.Random, entries: Entries) -> bytes:
    names = [
        "../x",
        "..",
        "a/../b",
        "/etc",
        "a\\b",
        "a\0",
        "C:",
        "x/",
        " a",
        "a" * 300,
        "%2e%2e",
        "\u202ea",
    ]
    chance.choice(entries)["name"] = chance.choice(names)
    return write(chance, entries).encode()


def damaged_bytes(chance: random.Random, entries: Entries) -> bytes:
    data = bytearray(write(chance, entries).encode())
    for _ in range(chance.randint(1, 8)):
        at = chance.randrange(len(data))
        action = chance.randrange(3)
        if action == 0:
            data[at] = chance.randrange(256)
        elif action == 1:
            del data[at]
        else:
            data[at:at] = bytes([chance.choice(b'{}[]",:\\0nt\x00\xff')])
    return bytes(data)


def damaged_tokens(chance: random.Random, entries: Entries) -> bytes:
    tokens = re.findall(r'"(?:[^"\\]|\\.)*"|[^\s"]|\s+', write(chance, entries))
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(tokens))
        tokens[at] = chance.choice([*"{}[],:", "//", "NaN", "1e999", "'", "", '"\\ud800"', "null"])
    return "".join(tokens).encode()


def junk(chance: random.Random, entries: Entries) -> bytes:
    size = chance.choice([0, 1, 2, 100, 10_000, 2 * 1024 * 1024])
    return chance.choice([chance.randbytes(size), b"[" * size, b" " * size, b'{"a":' * (size // 5)])


MUTATIONS: list[Mutation] = [
    half_saved, byte_order_mark, line_ends, doubled_name, unknown_key, wrong_type, traversal,
    damaged_bytes, damaged_tokens, junk,
]  # fmt: skip
EACH = 130  # ten ways of damage: 1,300 files


def read(data: bytes) -> AgentsFile | tuple[ConfigError, ...]:
    try:
        return parse_agents(data)
    except ConfigErrors as error:
        findings = error.findings
    assert findings
    lines = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace").split("\n")
    for each in findings:
        assert each.message
        assert each.field
        assert each.path == "agents.json"
        assert each.line is not None
        assert each.column is not None
        assert 1 <= each.line <= len(lines)
        assert 1 <= each.column <= len(lines[each.line - 1]) + 1
        assert len(str(each)) < 600
        assert "token-" not in str(each)
    return findings


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.__name__)
def test_a_damaged_file_is_read_or_refused_with_its_places(mutation: Mutation) -> None:
    outcomes = set()
    for seed in range(EACH):
        chance = random.Random(f"{mutation.__name__}-{seed}")
        data = mutation(chance, healthy(chance))
        outcome = read(data)
        outcomes.add(type(outcome))
        if isinstance(outcome, AgentsFile):
            names = [entry.name.casefold() for entry in outcome.entries]
            assert len(set(names)) == len(names), seed
            assert not any(name_problem(each.name) for each in outcome.entries), seed
            assert len(json.loads(data.removeprefix(b"\xef\xbb\xbf"))) == len(names), seed
    if mutation in {doubled_name, unknown_key, traversal}:
        assert outcomes == {tuple}
    assert tuple in outcomes


def test_the_files_are_healthy_before_they_are_damaged() -> None:
    for seed in range(50):
        chance = random.Random(seed)
        assert isinstance(read(write(chance, healthy(chance)).encode()), AgentsFile)
