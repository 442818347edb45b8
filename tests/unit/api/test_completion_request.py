"""What of a resent conversation is asked, what is told, and which conversations are the same."""

from __future__ import annotations

import pytest

from agentsup.api.completions.front import missing
from agentsup.api.completions.request import (
    ChatMessage,
    CompletionPrompt,
    PromptMessage,
    asked,
    remembered,
    request_digest,
)
from agentsup.model.errors import BadRequest


def of(*said: str) -> CompletionPrompt:
    """``s:`` system, ``u:`` user, ``a:`` assistant."""
    roles = {"s": "system", "d": "developer", "u": "user", "a": "assistant"}
    return asked(
        [ChatMessage.model_validate({"role": roles[one[0]], "content": one[2:]}) for one in said]
    )


def test_the_last_texts_are_asked_and_the_rest_was_said() -> None:
    one = of("s:be brief", "u:a", "a:b", "u:c", "u:d")
    assert one.text == "c\n\nd"
    assert [(said.role, said.text) for said in one.earlier] == [
        ("system", "be brief"),
        ("user", "a"),
        ("assistant", "b"),
    ]
    assert one.last_answer == "b"
    assert of("u:a").last_answer is None


def test_a_conversation_is_found_by_all_that_was_said_before_the_last_answer() -> None:
    first = of("s:x", "u:a")
    second = of("s:x", "u:a", "a:b", "u:c")
    third = of("s:x", "u:a", "a:b", "u:c", "a:d", "u:e")
    assert first.before == ""
    assert second.before == first.after
    assert third.before == second.after
    assert of("u:a", "a: b\n", "u:c", "a:d", "u:e").before == of("u:a", "a:b", "u:c").after
    others = [
        of("s:x", "u:a", "a:other", "u:c", "a:d", "u:e"),
        of("s:x", "u:a", "u:c", "a:d", "u:e"),
        of("s:x", "u:a", "a:b", "a:b", "u:c", "a:d", "u:e"),
        of("s:x", "u:a", "a:b", "s:y", "u:c", "a:d", "u:e"),
    ]
    assert second.after not in {one.before for one in others}
    different = [of("s:y", "u:a"), of("u:a"), of("s:x", "u:A"), of("d:x", "u:a"), of("u:x", "u:a")]
    assert len({one.after for one in [first, *different]}) == 6
    # Told something after the answer, the session has not heard everything.
    assert of("u:a", "a:b", "s:new rule", "u:c").before == ""


def test_who_of_several_people_says_it_is_told() -> None:
    said = [
        ChatMessage(role="user", content="I like tea", name="ann"),
        ChatMessage(role="assistant", content="Noted.", name="bot"),
        ChatMessage(role="user", content="2", name="bob"),
    ]
    one = asked(said)
    assert [each.text for each in one.earlier] == ["ann: I like tea", "Noted."]
    assert (one.text, one.typed) == ("bob: 2", "2")


def test_two_requests_are_the_same_only_word_by_word() -> None:
    def digest(one: CompletionPrompt, agent: str = "agt", conversation: str = "") -> str:
        return request_digest(agent, conversation, one)

    same = digest(of("u:a", "a:b", "u:c"))
    assert same == digest(of("u:a", "a:b", "u:c"))
    others = [
        digest(of("u:a", "a:x", "u:c")),
        digest(of("u:a", "u:c")),
        digest(of("u:a", "a:b", "u:c"), agent="other"),
        digest(of("u:a", "a:b", "u:c"), conversation="desk"),
    ]
    assert len({same, *others}) == 5


@pytest.mark.parametrize("said", [("a:b",), ("u:a", "a:b"), ("s:x",), ("u: \n",)])
def test_without_a_question_nothing_is_asked(said: tuple[str, ...]) -> None:
    with pytest.raises(BadRequest) as caught:
        of(*said)
    assert caught.value.facts["field"] == "messages"


def test_a_fresh_session_is_told_the_instructions_and_the_latest() -> None:
    earlier = [PromptMessage("system", "s"), *(PromptMessage("user", str(n)) for n in range(100))]
    kept = remembered(earlier, 60)
    assert [one.text for one in kept] == ["s", *(str(n) for n in range(41, 100))]
    assert remembered(earlier[:10], 60) == tuple(earlier[:10])
    assert len(remembered([PromptMessage("system", str(n)) for n in range(100)], 60)) == 60


@pytest.mark.parametrize(
    "sent, answer, rest",
    [
        ("", "all", "all"),
        ("one ", "one two", "two"),
        ("one two", "one two", ""),
        ("thinking… one two\n", "one two", ""),
        ("something else", "one two", "\n\none two"),
        ("", "", ""),
    ],
)
def test_a_reader_has_the_whole_answer_at_the_end(sent: str, answer: str, rest: str) -> None:
    assert missing(sent, answer) == rest


@pytest.mark.parametrize(
    "role, part, word",
    [
        ("user", {"type": "image_url", "image_url": {"url": "https://x.org/a.png"}}, "a picture"),
        (
            "user",
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,%"}},
            "a picture",
        ),
        ("assistant", {"type": "image_url", "image_url": {"url": "x"}}, "a picture"),
        ("user", {"type": "input_audio", "input_audio": {}}, "a recording"),
        ("user", {"type": "video_url", "video_url": {}}, "no text"),
        ("user", {"type": "text", "text": None}, "no text"),
        ("user", {"type": "text", "text": "half \ud83d"}, "half"),
    ],
)
def test_what_was_said_before_never_refuses_a_turn(
    role: str, part: dict[str, object], word: str
) -> None:
    before = ChatMessage.model_validate({"role": role, "content": [part]})
    answer = ChatMessage(role="assistant", content="b")
    last = ChatMessage(role="user", content="c")
    one = asked([before, answer, last])
    assert (one.text, one.files) == ("c", ())
    assert word in one.earlier[0].text
    one.earlier[0].text.encode()
    if role == "user":
        with pytest.raises(BadRequest):
            asked([before])
