"""Properties of the parsers: what is escaped comes back, entities cover what they marked."""

from __future__ import annotations

import html
import re

from hypothesis import given
from hypothesis import strategies as st

from agentsup.fakes.telegram.checks import checked_entities, checked_text
from agentsup.fakes.telegram.markup import parse, units

TEXTS = st.text(
    st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from("_*[]()~`>#+-=|{}.!\\\n🚀"))
)
STYLES = st.sampled_from(
    [("*", "bold"), ("_", "italic"), ("~", "strikethrough"), ("||", "spoiler")]
)


def escaped(text: str) -> str:
    return re.sub(r"([_*\[\]()~`>#+\-=|{}.!\\])", r"\\\1", text)


def covered(text: str, offset: int, length: int) -> str:
    data = text.encode("utf-16-le")
    return data[2 * offset : 2 * (offset + length)].decode("utf-16-le")


@given(TEXTS)
def test_escaped_markdown_is_the_text(text: str) -> None:
    assert parse(escaped(text), "MarkdownV2") == (text, [])


@given(TEXTS)
def test_escaped_html_is_the_text(text: str) -> None:
    assert parse(html.escape(text), "HTML") == (text, [])


@given(TEXTS, STYLES, TEXTS.filter(lambda text: text and "\n" not in text), TEXTS)
def test_a_styled_part_is_covered(
    before: str, style: tuple[str, str], part: str, after: str
) -> None:
    mark, kind = style
    source = escaped(before) + mark + escaped(part) + mark + escaped(after)
    plain, (entity,) = parse(source, "MarkdownV2")
    assert plain == before + part + after
    assert entity["type"] == kind
    assert covered(plain, entity["offset"], entity["length"]) == part


@given(TEXTS, TEXTS.filter(lambda text: bool(text) and text[0] != "\r"))
def test_code_takes_everything_but_its_own_marks(before: str, code: str) -> None:
    inside = code.replace("\\", "\\\\").replace("`", "\\`")
    plain, (entity,) = parse(f"{escaped(before)}\n```\n{inside}```", "MarkdownV2")
    assert plain == f"{before}\n{code}"
    assert covered(plain, entity["offset"], entity["length"]) == code


@given(TEXTS, st.integers(0, 40), st.integers(1, 40))
def test_entities_are_taken_exactly_when_they_fit(text: str, offset: int, length: int) -> None:
    entity = {"type": "bold", "offset": offset, "length": length}
    try:
        covered(text, offset, length)
        fits = offset + length <= units(text)
        fits = fits and covered(text, 0, offset) is not None
    except UnicodeDecodeError:
        fits = False
    try:
        taken = checked_entities(text, [entity]) == [entity]
    except Exception:  # noqa: BLE001 - any refusal counts
        taken = False
    assert taken == fits


@given(TEXTS.filter(lambda text: bool(text.strip())), st.data())
def test_trimming_moves_entities_with_their_text(text: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(text) - 1))
    offset, length = units(text[:place]), units(text[place])
    shown, entities = checked_text(
        text, "", [{"type": "bold", "offset": offset, "length": length}], allow_empty=True
    )
    for entity in entities:
        assert covered(shown, entity["offset"], entity["length"]) in {text[place], " "}
