"""Hosts, origins and bearer headers as pure decisions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsup.api.http.access import Access, HostRules, bearer, is_agent, may
from agentsup.model.control import TokenIdentity
from agentsup.model.principal import OPERATOR, Principal, PrincipalKind

RULES = HostRules.of(8799, ("Agents.Example", "box.local:9000", " ", "[fd00::1]:8799"))


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:8799",
        "localhost:8799",
        "LocalHost:8799",
        "[::1]:8799",
        "agents.example",
        "agents.example:443",
        "box.local:9000",
        "[fd00::1]:8799",
    ],
)
def test_names_of_ours(host: str) -> None:
    assert RULES.host_allowed(host)
    assert RULES.origin_allowed(f"http://{host}", host)
    assert RULES.origin_allowed(f"https://{host}", host)


@pytest.mark.parametrize(
    "host",
    [
        None,
        "",
        "127.0.0.1",
        "127.0.0.1:80",
        "127.0.0.1:8799 ",
        "127.0.0.1:08799",
        "127.0.0.1:8799:8799",
        "127.0.0.1:8799.evil.example",
        "evil.example@127.0.0.1:8799",
        "127.0.0.1:8799@evil.example",
        "evil.example:8799",
        "localhost.evil.example:8799",
        "box.local",
        "box.local:9001",
        "::1:8799",
        "[::1]",
        "[::1]evil:8799",
        "x.agents.example",
        "agents.example.",
    ],
)
def test_names_of_others(host: str | None) -> None:
    assert not RULES.host_allowed(host)


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "http://evil.example",
        "http://127.0.0.1",
        "http://127.0.0.1:8799/",
        "http://127.0.0.1:8799/path",
        "http://user@127.0.0.1:8799",
        "ftp://127.0.0.1:8799",
        "file://",
        "chrome-extension://127.0.0.1:8799",
        "127.0.0.1:8799",
        "http://[::1",
        "http://127.0.0.1:8799 http://evil.example",
    ],
)
def test_origins_of_others(origin: str) -> None:
    assert not RULES.origin_allowed(origin, "127.0.0.1:8799")


@pytest.mark.parametrize(
    "origin, host, is_ours",
    [
        ("http://agents.example:3000", "agents.example:8799", False),
        ("http://agents.example", "agents.example:8799", False),
        ("https://agents.example:8443", "agents.example:8799", False),
        ("http://agents.example:8799", "agents.example:8799", True),
        ("https://agents.example", "agents.example", True),
        ("https://agents.example", "127.0.0.1:8799", True),
        ("http://box.local:9000", "127.0.0.1:8799", True),
        ("http://box.local:9000", "agents.example:8799", True),
    ],
)
def test_another_port_of_a_listed_name_is_not_our_page(
    origin: str, host: str, is_ours: bool
) -> None:
    assert RULES.origin_allowed(origin, host) is is_ours


def test_no_origin_is_no_browser() -> None:
    assert RULES.origin_allowed(None, "127.0.0.1:8799")


def test_the_default_port_may_be_left_out() -> None:
    rules = HostRules.of(80)
    assert rules.host_allowed("localhost")
    assert rules.origin_allowed("http://localhost", "localhost")
    assert not rules.origin_allowed("https://localhost", "localhost")


@pytest.mark.parametrize(
    "bound, listed, own, pages",
    [
        (["127.0.0.1"], (), "127.0.0.1:80", {"127.0.0.1"}),
        (["0.0.0.0"], (), "127.0.0.1:80", {"127.0.0.1"}),
        (["::1"], (), "[::1]:80", {"[::1]"}),
        (["::"], (), "[::1]:80", {"[::1]"}),
        (["::1", "127.0.0.1"], (), "[::1]:80", {"localhost", "127.0.0.1", "[::1]"}),
        (["127.0.0.1"], ("localhost:80",), "127.0.0.1:80", {"localhost", "127.0.0.1"}),
        (["127.0.0.1"], ("Localhost",), "127.0.0.1:80", {"localhost", "127.0.0.1"}),
        (["fd00::1"], (), "[fd00::1]:80", set()),
    ],
)
def test_the_page_is_where_nobody_else_can_listen(
    bound: list[str], listed: tuple[str, ...], own: str, pages: set[str]
) -> None:
    rules = HostRules.of(80, listed, bound)
    assert rules.own == own
    for host in ("localhost", "127.0.0.1", "[::1]"):
        assert rules.host_allowed(host), "programs call it with a token as before"
        assert rules.page_allowed(host) is rules.page_allowed(f"{host}:80") is (host in pages)


@given(st.text(max_size=40))
def test_any_other_text_is_refused_and_never_raises(text: str) -> None:
    assert not RULES.host_allowed("evil" + text)
    assert not RULES.origin_allowed("http://evil" + text, "evil" + text)
    RULES.host_allowed(text)
    RULES.origin_allowed(text, text)


@pytest.mark.parametrize(
    "header, token",
    [
        ("Bearer abc", "abc"),
        ("bearer  abc ", "abc"),
        ("BEARER abc", "abc"),
        (None, None),
        ("", None),
        ("Bearer", None),
        ("Bearer ", None),
        ("Basic abc", None),
        ("abc", None),
        ("Bearer äbc", None),
        ("Bearer \udcff", None),
    ],
)
def test_bearer_headers(header: str | None, token: str | None) -> None:
    assert bearer(header) == token


def test_who_may_use_what() -> None:
    operator = TokenIdentity(OPERATOR)
    agent = TokenIdentity(Principal(PrincipalKind.AGENT, "agt_1", "a"), "agt_1")
    run = TokenIdentity(Principal(PrincipalKind.RUN, "agt_1", "a"), "agt_1", "msg_1")
    assert all(may(operator, access) for access in Access if access is not Access.RUN)
    assert [each for each in (operator, agent, run) if may(each, Access.RUN)] == [run]
    assert [each for each in (operator, agent, run) if is_agent(each)] == [run]
    for identity in (agent, run):
        assert may(identity, Access.ANY)
        assert may(identity, Access.WORK)
        assert not may(identity, Access.OPERATOR)


@pytest.mark.parametrize(
    "base, near, far",
    [
        ("http://127.0.0.1:8799", ("here",), ("here",)),
        ("http://LocalHost:8799", ("here",), ("here",)),
        ("https://agents.localhost", ("here",), ("here",)),
        ("http://[::1]:8799", ("here",), ("here",)),
        ("http://127.1.2.3", ("here",), ("here",)),
        ("http://192.168.1.20:8799", ("near", "open"), ("open",)),
        ("https://agents.home.example", (), ()),
    ],
)
def test_a_link_for_another_machine_is_doubted(
    base: str, near: tuple[str, ...], far: tuple[str, ...]
) -> None:
    assert HostRules.of(8799).doubts(base) == near
    assert HostRules.of(8799, bound=("127.0.0.1", "::1")).doubts(base) == near
    assert HostRules.of(8799, bound=("0.0.0.0",)).doubts(base) == far
    assert HostRules.of(8799, bound=("127.0.0.1", "192.168.1.20")).doubts(base) == far
