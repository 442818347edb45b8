from __future__ import annotations

import json

import pytest
from pydantic import BaseModel, Field

from agentsup.api.documents.document import Document
from agentsup.api.http.problems import encode
from agentsup.api.server.listener import ROUTES


class Part(Document):
    """A part of something."""

    name: str
    size: int | None = Field(None, description="in bytes")


class Done(Document):
    success: bool


class Whole(Part, Done):
    parts: list[Part] = Field(description="of which it is made")
    size: int


class _Value:
    name, size = "a", 3


def test_a_document_has_what_is_given_in_the_order_of_its_members() -> None:
    part = Part.from_value(_Value())
    assert encode(part) == b'{"name":"a"}', "an optional member is not taken from the value"
    assert part.size is None
    whole = Whole.from_value(_Value(), parts=[part], success=True, unknown=1)
    assert encode(whole) == b'{"success":true,"name":"a","size":3,"parts":[{"name":"a"}]}'
    with pytest.raises(AttributeError):
        Whole.from_value(_Value(), success=True)
    with pytest.raises(AttributeError):
        _ = Part(size=1).name


def test_a_copy_with_other_members_leaves_the_document_as_it_is() -> None:
    part = Part(name="a", size=1)
    assert part.with_members(name="b").members() == {"name": "b", "size": 1}
    assert part.members() == {"name": "a", "size": 1}


def test_the_schema_of_a_document_is_that_of_a_model_with_its_members() -> None:
    class Listed(BaseModel):
        whole: Whole

    schema = Listed.model_json_schema()
    assert schema["$defs"]["Part"] == {
        "additionalProperties": False,
        "description": "A part of something.",
        "properties": {
            "name": {"title": "Name", "type": "string"},
            "size": {
                "anyOf": [{"type": "integer"}, {"type": "null"}],
                "default": None,
                "description": "in bytes",
                "title": "Size",
            },
        },
        "required": ["name"],
        "title": "Part",
        "type": "object",
    }
    whole = schema["$defs"]["Whole"]
    assert list(whole["properties"]) == whole["required"] == ["success", "name", "size", "parts"]
    assert whole["properties"]["parts"]["items"] == {"$ref": "#/$defs/Part"}
    assert json.dumps(Whole.as_model().model_json_schema()["properties"]["parts"])


def test_no_answer_is_a_model_of_pydantic_while_nobody_asks_for_its_schema() -> None:
    """A hundred models take 1 MiB and 30 ms of each start."""
    answers = {answer for route in ROUTES for answer in route.answers.values()}
    models = {a.__name__ for a in answers if isinstance(a, type) and issubclass(a, BaseModel)}
    assert models == {"TaskOrResult"}, "make it a Document"
