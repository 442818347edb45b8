"""What the doctor says of proxies."""

from __future__ import annotations

from agentsup.cli.doctor.check import OK, WARN
from agentsup.cli.doctor.proxies import check_proxies


def test_proxies_are_shown_without_passwords() -> None:
    given = {"https_proxy": "http://me:secret@proxy.example:3128", "NO_PROXY": "*"}
    (one,) = check_proxies(given)
    assert one.result == OK
    assert "proxy.example:3128" in one.text
    assert "secret" not in one.text


def test_a_proxy_that_can_not_be_used_is_a_warning() -> None:
    (one,) = check_proxies({"ALL_PROXY": "socks5://me:secret@proxy.example:1080"})
    assert one.result == WARN
    assert "socks5" in one.text
    assert "secret" not in one.text


def test_without_proxies_there_is_nothing_to_say() -> None:
    assert list(check_proxies({"NO_PROXY": "x"})) == []
