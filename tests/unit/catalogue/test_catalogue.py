"""The catalogue: every key in every language, with the same places; and what the code asks for."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from string import Formatter

import pytest

from agentsup.catalogue import ENGLISH, Catalogue, load, words
from agentsup.catalogue.texts import flatten
from agentsup.kit.own_command import naming
from tests.support.source_tree import modules, nodes_of

OTHERS = [code for code in load().languages if code != ENGLISH]


def test_there_is_a_second_language() -> None:
    assert load().languages[0] == ENGLISH
    assert "de" in OTHERS


def placeholders(text: str) -> frozenset[str]:
    """The names of the placeholders in a text."""
    return frozenset(name for _, name, _, _ in Formatter().parse(text) if name)


@pytest.mark.parametrize("code", OTHERS)
def test_a_translation_has_every_key_with_the_same_places(code: str) -> None:
    english, other = load().texts(ENGLISH), load().texts(code)
    said = {key: text for key, text in other.items() if not key.startswith("command.")}
    assert set(said) == set(english)
    for key, text in said.items():
        if not key.endswith(".one"):  # one may be said without its number
            assert placeholders(text) == placeholders(english[key]), f"{code}: {key}"
    assert not any(placeholders(text) for key, text in other.items() if key not in said)


def test_what_counts_has_both_numbers() -> None:
    keys = set(load().texts(ENGLISH))
    counted = {key.removesuffix(".other") for key in keys if key.endswith(".other")}
    assert counted
    assert {f"{key}.one" for key in counted} <= keys
    assert words().count("agent.restarts", 1) == "1 restart lately"
    assert words("de").count("message.age", 1.5) == "1.5 Stunden"


def asked_for() -> dict[str, str]:
    """Keys written out in the code, each with a place where it stands."""
    found = {}
    for path in modules():
        for node in nodes_of(path):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found[node.value] = f"{path.name}:{node.lineno}"
    return found


@pytest.mark.code
def test_every_key_is_asked_for() -> None:
    """A text that nothing says is no text. Some keys are made of a table's name and a word."""
    made = re.compile(
        r"(state|budget|context|cost|approval|button|confirm|press|question|diff|agent|unreadable|failure|failed|trace|wait|rights|skip|task_state|run_state|memory\.scope|link|media)\."
    )
    texts, known = load().texts(ENGLISH), asked_for()
    one = {key for key in texts if key.endswith(".one") and f"{key[:-4]}.other" in texts}
    bare = {key.removesuffix(".other") for key in set(texts) - one}
    assert {key for key in bare if key not in known and not made.match(key)} == set()


@pytest.mark.parametrize("code", load().languages)
def test_every_text_can_be_filled(code: str) -> None:
    for key, said in load().texts(code).items():
        facts = {name: f"<{name}>" for name in placeholders(said)}
        fields = [name for _, name, _, _ in Formatter().parse(said) if name]  # some stand twice
        assert said.strip()
        assert load().text(key, code, **facts).count("<") == len(fields) >= len(facts)


def test_the_person_s_language_is_found_or_english_is_spoken() -> None:
    words = load()
    assert words.best("de-AT") == "de"
    assert words.best("DE_ch") == "de"
    assert words.best("tlh") == ENGLISH
    assert words.best("") == ENGLISH
    assert words.text("button.no", "de-AT") == "Nein"
    assert words.text("button.no", "tlh") == "No"


def test_what_a_translation_lacks_is_said_in_english() -> None:
    words = Catalogue({"en": {"a": "one {x}", "b": "two"}, "xx": {"b": "zwo"}})
    assert words.text("b", "xx") == "zwo"
    assert words.text("a", "xx", x="{y}") == "one {y}"
    assert words.command("stop", "xx") is None
    with pytest.raises(KeyError):
        words.text("c", "xx")
    with pytest.raises(KeyError):
        words.text("a", "xx", z=1)


def test_a_file_holds_texts_only() -> None:
    assert flatten({"a": {"b": {"c": "x"}}, "d": "y"}) == {"a.b.c": "x", "d": "y"}
    with pytest.raises(TypeError, match=r"a\.b"):
        flatten({"a": {"b": 3}})


def test_commands_name_the_home_but_not_to_strangers() -> None:
    with naming(Path("/srv/home"), Path("/home/anna/.agentsup")):
        for language in load().languages:
            told = words(language)("list.more_failed", n=3)
            assert "`agentsup --home /srv/home failed list`" in told
            assert "/srv" not in words(language)("pairing.code", code="K7QF-2M9D")
            assert "/srv" not in words(language)("elsewhere.then")
