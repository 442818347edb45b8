"""`[traces]` and `[otel]` of config.toml: what is kept of turns, and where spans are sent."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class TraceSettings(_Section):
    """`[traces]`: whether turns are traced, and for how long and how many spans are kept."""

    enabled: bool = True
    keep_days: Annotated[int, Field(ge=1, le=36_500)] = 14
    max_spans: Annotated[int, Field(ge=1_000, le=100_000_000)] = 200_000


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


class OtelSettings(_Section):
    """`[otel]`: where spans are sent by OTLP over HTTP; without an endpoint nowhere."""

    endpoint: Annotated[str, AfterValidator(_address)] = ""
    """`http://host:4318`; `/v1/traces` is added where no path is given."""
    headers: Annotated[dict[str, str], Field(repr=False)] = {}
    """Values may be `env:NAME` or `file:PATH`."""
    service_name: Annotated[str, Field(min_length=1, max_length=200)] = "agentsup"
    content: bool = False
    """Whether arguments of calls and texts of errors are sent along."""

    @property
    def url(self) -> str:
        """The address that spans are posted to; empty without an endpoint."""
        if not self.endpoint:
            return ""
        bare = self.endpoint.rstrip("/")
        return self.endpoint if urlsplit(bare).path else f"{bare}/v1/traces"
