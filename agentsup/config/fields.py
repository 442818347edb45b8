"""The base and the types of values that several tables of config.toml share."""

from __future__ import annotations

import zoneinfo
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from agentsup.config.findings import did_you_mean


class Section(BaseModel):
    """A table of config.toml: unknown keys are findings."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


def setting(default: object, meaning: str) -> Any:
    """Declare a setting with its default and what it means to the person who writes the file."""
    return Field(default, description=meaning)


def as_tuple(value: object) -> object:
    """Convert a list of the file to a tuple, since settings are immutable, even if types are
    strict."""
    return tuple(value) if isinstance(value, list) else value


Texts = Annotated[tuple[str, ...], BeforeValidator(as_tuple)]


def timezone_name(text: str) -> str:
    """The name of a time zone, or an empty text. Raises ``ValueError`` for an unknown one."""
    try:
        if text:
            zoneinfo.ZoneInfo(text)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        known = zoneinfo.available_timezones()
        if known:  # a machine without any time zone data can't tell right from wrong
            hint = did_you_mean(text, known) or "it looks like Europe/Zurich"
            raise ValueError(f"this time zone is not known; {hint}") from None
    return text
