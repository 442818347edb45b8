"""Which addresses a tool may reach, in all the forms in which one can be written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsup.agents.tools.web.addresses import is_public, url_problem

HIDDEN = [
    "127.0.0.1",
    "127.9.9.9",
    "168.63.129.16",
    "192.88.99.1",
    "192.31.196.1",
    "192.52.193.1",
    "192.175.48.1",
    "2620:4f:8000::1",
    "3fff::1",
    "::ffff:168.63.129.16",
    "0.0.0.0",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "192.0.0.8",
    "192.0.2.1",
    "198.18.0.1",
    "224.0.0.1",
    "239.1.1.1",
    "240.0.0.1",
    "255.255.255.255",
    "::1",
    "::",
    "fe80::1",
    "fc00::1",
    "fd00:ec2::254",
    "ff02::1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:a9fe:a9fe",
    "::127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::a9fe:a9fe",
    "2002:7f00:1::",
    "2002:a9fe:a9fe::",
    "2001:0:0:0:0:0:5601:5601",
    "2001:db8::1",
    "fe80::1%eth0",
    "93.184.216.34%eth0",
    "fec0::1",
]
PUBLIC = ["93.184.216.34", "1.1.1.1", "2606:4700:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"]


@pytest.mark.parametrize("address", HIDDEN)
def test_what_is_not_public_is_not_reached(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_the_public_network_is(address: str) -> None:
    assert is_public(address)


@given(st.integers(0, 2**32 - 1))
def test_an_address_within_another_is_judged_as_itself(number: int) -> None:
    octets = ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0))
    for form in (f"::ffff:{octets}", f"64:ff9b::{octets}"):
        assert is_public(form) == is_public(octets)


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "gopher://example.org/",
        "http://localhost/",
        "http://LOCALHOST./",
        "http://x.localhost/",
        "http://metadata.google.internal/",
        "http://127.0.0.1/",
        "http://[::1]/",
        "http://[::ffff:169.254.169.254]/",
        "http://169.254.169.254/latest/meta-data",
        "http://user:pass@example.org/",
        "http://example.org:22/",
        "http://example.org:8799/",
        "http://example.org:99999/",
        "http:///x",
        "http://exam ple.org/",
        "http://example.org\\@127.0.0.1/",
        "http://example.org/\r\nHost: x",
        "https://" + "a" * 5000,
        "",
    ],
)
def test_urls_out_of_the_question(url: str) -> None:
    assert url_problem(url) is not None


@pytest.mark.parametrize(
    "url", ["https://example.org/a?b=c#d", "http://example.org:80/", "https://1.1.1.1/"]
)
def test_ordinary_urls_pass(url: str) -> None:
    assert url_problem(url) is None
