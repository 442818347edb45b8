from __future__ import annotations

import pytest

from agentsup.kit.sentences import as_sentence


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("the server is down", "The server is down."),
        ("is the server up?", "Is the server up?"),
        ("http://127.0.0.1:1/v1 is down", "http://127.0.0.1:1/v1 is down."),
        ("https://a.example is down. ", "https://a.example is down."),
        ("", ""),
    ],
)
def test_a_sentence_ends_once_and_leaves_an_address_as_it_is(text: str, sentence: str) -> None:
    assert as_sentence(text) == sentence
