"""``[otel]`` of config.toml: where spans are sent."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from agentsup.config.fields import Section, setting


def _address(text: str) -> str:
    if text:
        try:
            parts = urlsplit(text)
            is_address = parts.scheme in ("http", "https") and bool(parts.hostname)
        except ValueError:
            is_address = False
        if not is_address:
            raise ValueError("this is no address of an OTLP receiver, as http://localhost:4318 is")
    return text


class OtelSettings(Section):
    """``[otel]``: where spans are sent by OTLP over HTTP; without an endpoint nowhere."""

    endpoint: Annotated[str, AfterValidator(_address)] = setting(
        "", "http://host:4318; /v1/traces is added if there is no path."
    )
    headers: dict[str, str] = Field(
        default_factory=dict, repr=False, description="Values may be env:NAME or file:PATH."
    )
    service_name: Annotated[str, Field(min_length=1, max_length=200)] = setting(
        "agentsup", "Name under which spans are sent."
    )
    content: bool = setting(False, "Whether arguments of calls and texts of errors are sent too.")

    @property
    def url(self) -> str:
        """The address to which spans are posted; empty without an endpoint."""
        if not self.endpoint:
            return ""
        bare = self.endpoint.rstrip("/")
        return self.endpoint if urlsplit(bare).path else f"{bare}/v1/traces"
