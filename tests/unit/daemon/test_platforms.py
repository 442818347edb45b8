"""The table of platforms names what there is."""

from __future__ import annotations

import importlib.util
import tomllib
from operator import attrgetter
from pathlib import Path

import pytest

from agentsup.config.settings_file import Person
from agentsup.daemon.runtime.transports import TRANSPORTS
from agentsup.model.agent import AgentSpec, MatrixIdentity
from agentsup.model.platforms import MATRIX, PLATFORMS, TELEGRAM, PlatformSpec
from agentsup.model.secret import Secret

ROOT = Path(__file__).parents[3]
each_platform = pytest.mark.parametrize("platform", PLATFORMS, ids=lambda each: each.name)


def test_each_platform_has_a_transport() -> None:
    assert tuple(each.platform for each in TRANSPORTS) == PLATFORMS


@each_platform
def test_its_fields_packages_and_extra_are_there(platform: PlatformSpec) -> None:
    spec = AgentSpec("bob")
    of_secrets = (each.field for each in platform.secrets)
    required = (field for fields, _ in platform.required for field in fields)
    for field in (
        platform.account,
        platform.people,
        *platform.needs_new_bot,
        *of_secrets,
        *required,
    ):
        attrgetter(field)(spec)
    assert platform.name in Person.model_fields
    for module in ("client", "life"):
        assert importlib.util.find_spec(f"agentsup.channels.{platform.name}.{module}")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = extras["optional-dependencies"][platform.name]
    if platform.library:
        assert [each.startswith(platform.distribution) for each in needed] == [True]


def test_an_agent_gets_a_bot_where_it_has_all_of_an_account() -> None:
    token = Secret("1:good")
    assert not any(each.wants(AgentSpec("bob")) for each in PLATFORMS)
    assert TELEGRAM.wants(AgentSpec("bob", telegram_token=token))
    assert not TELEGRAM.wants(AgentSpec("bob", telegram_token=token, transports=("matrix",)))
    account = MatrixIdentity(user_id="@bob:here")
    assert MATRIX.lacks(AgentSpec("bob", matrix=account)) == (
        "matrix.homeserver is missing",
        "the Matrix account has neither password nor access_token",
    )
    assert not MATRIX.wants(AgentSpec("bob", matrix=account))
    account = MatrixIdentity("http://here", "@bob:here", password=token)
    assert MATRIX.wants(AgentSpec("bob", matrix=account))


def test_of_an_agent_without_an_account_nothing_is_missing() -> None:
    assert MATRIX.lacks(AgentSpec("bob", matrix=MatrixIdentity("http://here"))) == ()
    assert not MATRIX.has_account(AgentSpec("bob"))
