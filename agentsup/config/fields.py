"""Kinds of values that tables of config.toml share."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator


def as_tuple(value: object) -> object:
    """Lists of the file become the tuples of an immutable value, also where types are strict."""
    return tuple(value) if isinstance(value, list) else value


Texts = Annotated[tuple[str, ...], BeforeValidator(as_tuple)]
