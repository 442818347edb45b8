"""The catalogue: English complete, the others a part of it with the same places."""

import pytest

from agentsup.channels.catalogue import ENGLISH, Catalogue, load
from agentsup.channels.catalogue.texts import flatten, placeholders

OTHERS = [code for code in load().languages if code != ENGLISH]


def test_there_is_a_second_language() -> None:
    assert load().languages[0] == ENGLISH
    assert "de" in OTHERS


@pytest.mark.parametrize("code", OTHERS)
def test_a_translation_has_known_keys_and_the_same_places(code: str) -> None:
    english, other = load().texts(ENGLISH), load().texts(code)
    for key, words in other.items():
        if key.startswith("command."):
            assert not placeholders(words)
            continue
        assert key in english, f"{code}: {key} is no key of English"
        assert placeholders(words) == placeholders(english[key]), f"{code}: {key}"


@pytest.mark.parametrize("code", load().languages)
def test_every_text_can_be_filled(code: str) -> None:
    for key, words in load().texts(code).items():
        facts = {name: f"<{name}>" for name in placeholders(words)}
        assert words.strip()
        assert load().text(key, code, **facts).count("<") == len(facts)


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
