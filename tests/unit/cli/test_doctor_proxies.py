"""What the doctor says of proxies."""

from __future__ import annotations

from pathlib import Path

from agentsup.cli.connect.locate import DaemonLocation
from agentsup.cli.doctor.check import OK, WARN, Check, Examined
from agentsup.cli.doctor.checks import check_proxies
from agentsup.config import Home


def found(environ: dict[str, str]) -> list[Check]:
    return [*check_proxies(Examined(DaemonLocation(Home(Path("/nowhere"))), environ))]


def test_proxies_are_shown_without_passwords() -> None:
    given = {"https_proxy": "http://me:secret@proxy.example:3128", "NO_PROXY": "*"}
    (one,) = found(given)
    assert one.result == OK
    assert "proxy.example:3128" in one.text
    assert "secret" not in one.text


def test_a_proxy_that_can_not_be_used_is_a_warning() -> None:
    (one,) = found({"ALL_PROXY": "socks5://me:secret@proxy.example:1080"})
    assert one.result == WARN
    assert "socks5" in one.text
    assert "secret" not in one.text


def test_without_proxies_there_is_nothing_to_say() -> None:
    assert found({"NO_PROXY": "x"}) == []
