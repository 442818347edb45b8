"""``[otel]``: addresses, defaults, and no secret in what is shown."""

from __future__ import annotations

import pytest

from agentsup.config.observing import OtelSettings
from agentsup.config.settings import parse_settings
from agentsup.model.errors import ConfigErrors


def test_without_an_endpoint_nothing_is_sent() -> None:
    settings = parse_settings(None).settings
    assert settings.otel.url == ""


@pytest.mark.parametrize(
    "endpoint, url",
    [
        ("http://localhost:4318", "http://localhost:4318/v1/traces"),
        ("https://otel.example/", "https://otel.example/v1/traces"),
        ("https://otel.example/mine/v1/traces", "https://otel.example/mine/v1/traces"),
    ],
)
def test_an_endpoint_without_a_path_gets_the_usual_one(endpoint: str, url: str) -> None:
    assert OtelSettings(endpoint=endpoint).url == url


@pytest.mark.parametrize("endpoint", ["localhost:4318", "ftp://x", "http://", "http://[", "grpc"])
def test_what_is_no_address_is_named(endpoint: str) -> None:
    with pytest.raises(ConfigErrors) as caught:
        parse_settings(f'[otel]\nendpoint = "{endpoint}"\n'.encode())
    (found,) = caught.value.findings
    assert found.field == "otel.endpoint"
    assert "no address of an OTLP receiver" in found.message


def test_headers_are_not_shown() -> None:
    assert "hush" not in repr(OtelSettings(headers={"authorization": "hush"}))


def test_unknown_keys_are_findings() -> None:
    for text in ("[traces]\nkept_days = 1", "[otel]\nendpont = ''"):
        with pytest.raises(ConfigErrors):
            parse_settings(text.encode())


def test_a_file_that_says_how_long_spans_are_kept_is_accepted() -> None:
    loaded = parse_settings(b"[traces]\nenabled = false\nkeep_days = 3\nmax_spans = 10\n")
    assert {found.field for found in loaded.warnings} == {
        "traces.enabled",
        "traces.keep_days",
        "traces.max_spans",
    }
    assert all("no effect" in found.message for found in loaded.warnings)
