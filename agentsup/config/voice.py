"""``[voice]`` of config.toml: how voice messages become texts."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from agentsup.config.fields import Section, Texts, setting

FILE = "{file}"
"""Stands for the recording among the arguments of ``hear_command``."""


def _address(text: str) -> str:
    if text:
        parts = urlsplit(text)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username:
            raise ValueError("this is no address of a server, as https://api.openai.com/v1 is")
    return text.rstrip("/")


class VoiceSettings(Section):
    """``[voice]``: how voice messages become texts; without a server or a program they do not."""

    hear_url: Annotated[str, AfterValidator(_address)] = setting(
        "", "Server with /audio/transcriptions, such as https://api.openai.com/v1."
    )
    hear_key: str = Field("", repr=False, description="The server's key, as env:NAME or file:PATH.")
    hear_model: Annotated[str, Field(min_length=1, max_length=200)] = setting(
        "whisper-1", "Model that the server is asked for."
    )
    hear_command: Texts = setting(
        (), "Instead of a server, a program: {file} is the recording, its output the text."
    )
    language: str = setting("", "Language that is spoken, such as de; empty: it is recognised.")
    max_minutes: Annotated[int, Field(ge=1, le=240)] = setting(
        20, "Longer recordings are not listened to."
    )
    timeout_s: Annotated[float, Field(gt=0, le=3600)] = setting(
        120.0, "Seconds that one recording may take."
    )

    @model_validator(mode="after")
    def _one_way(self) -> VoiceSettings:
        if self.hear_command and self.hear_url:
            raise ValueError("hear_url and hear_command exclude each other: name one of them")
        if self.hear_command and FILE not in " ".join(self.hear_command):
            raise ValueError(f"hear_command must have {FILE} where the recording is named")
        return self

    @property
    def is_on(self) -> bool:
        """Whether voice messages are listened to."""
        return bool(self.hear_url or self.hear_command)
