"""The values of an answer: what they refuse, and buttons as JSON."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsup.model.answer import Answer, Button, Buttons, FileRef, Text
from agentsup.model.errors import BadRequest

labels = st.text(min_size=1).filter(lambda text: bool(text.strip()))
buttons = st.one_of(
    st.builds(Button, labels, data=st.text(min_size=1)),
    st.builds(Button, labels, url=st.text(min_size=1)),
)
keyboards = st.builds(
    Buttons, st.lists(st.lists(buttons, max_size=3).map(tuple), max_size=3).map(tuple)
)


@given(keyboards)
def test_buttons_survive_the_body_of_a_part(keyboard: Buttons) -> None:
    body = json.dumps({"buttons": keyboard.to_json()})
    assert Buttons.from_json(json.loads(body)["buttons"]) == keyboard


@pytest.mark.parametrize(
    "value, field",
    [
        (None, "buttons"),
        ({"label": "a"}, "buttons"),
        (["a"], "buttons[0]"),
        ([[]] * 2 + [[{"label": "a"}]], "buttons[2][0]"),
        ([[{"label": "a", "data": "b"}, {"label": "a", "data": 3}]], "buttons[0][1]"),
        ([[{"label": "a", "data": "b", "url": "c"}]], "buttons[0][0]"),
        ([[{"label": " ", "data": "b"}]], "buttons[0][0]"),
        ([[{"label": "a", "data": "b", "colour": "red"}]], "buttons[0][0]"),
    ],
)
def test_a_wrong_body_is_refused_by_its_place(value: object, field: str) -> None:
    with pytest.raises(BadRequest) as caught:
        Buttons.from_json(value)
    assert caught.value.facts["field"] == field


@pytest.mark.parametrize("arguments", [("a",), ("a", "b", "c"), ("", "b"), (" \n", "b")])
def test_a_button_does_one_thing_and_says_what(arguments: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="button"):
        Button(*arguments)


def test_an_answer_finds_its_files_and_buttons() -> None:
    yes, no = Button("Yes", "y"), Button("No", "n")
    answer = Answer(
        (Buttons(((yes,),)), Text("hi"), FileRef("/a/b.txt"), FileRef("x/", "n"), Buttons(((no,),)))
    )
    assert [file.label for file in answer.files] == ["b.txt", "n"]
    assert answer.buttons == Buttons(((yes,), (no,)))
    assert Answer().buttons.rows == ()
