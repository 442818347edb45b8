"""Who people are: [people] before allowed_user_ids, operators with and without [people]."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from agentsup.config import ConfigSnapshot
from agentsup.config.settings_file import Person, SettingsFile
from agentsup.daemon.runtime.people import People
from agentsup.model.agent import MAIN, AgentSpec, MatrixIdentity
from agentsup.model.platforms import MATRIX, TELEGRAM
from agentsup.model.principal import PersonRole


@dataclass
class Snapshot:
    settings: SettingsFile
    specs: dict[str, AgentSpec] = field(default_factory=dict)

    def find(self, name: str) -> AgentSpec | None:
        return self.specs.get(name)


MAIN_SPEC = AgentSpec(
    MAIN, allowed_user_ids=(1, 2), matrix=MatrixIdentity(allowed_users=("@one:h", "@two:h"))
)
BOB = AgentSpec(
    "bob",
    allowed_user_ids=(2, 3),
    matrix=MatrixIdentity(allowed_users=("@two:h", "@three:h"), language="de"),
)


def people_of(**people: dict[str, Any]) -> People:
    settings = SettingsFile(people={name: Person(**given) for name, given in people.items()})
    snapshot = Snapshot(settings, {MAIN: MAIN_SPEC, "bob": BOB})
    return People(lambda: cast(ConfigSnapshot, snapshot))


@pytest.mark.parametrize(
    "spec, user_id, role",
    [
        (MAIN_SPEC, 1, PersonRole.OPERATOR),
        (BOB, 2, PersonRole.OPERATOR),
        (BOB, 3, PersonRole.USER),
        (BOB, 1, None),
        (MAIN_SPEC, 3, None),
    ],
)
def test_without_people_those_whom_main_allows_are_operators(
    spec: AgentSpec, user_id: int, role: PersonRole | None
) -> None:
    found = people_of()(spec, user_id)
    assert (found.role if found else None) == role
    assert people_of().operators(TELEGRAM) == {1, 2}
    assert people_of().operators(MATRIX) == {"@one:h", "@two:h"}


def test_with_people_their_roles_hold_and_the_allowed_are_users() -> None:
    people = people_of(
        anna={"role": "manager", "telegram": (7,)}, eve={"role": "viewer", "telegram": (2,)}
    )
    anna = people(BOB, 7)
    assert anna is not None
    assert (anna.name, anna.role, anna.is_operator) == ("anna", PersonRole.MANAGER, True)
    eve = people(BOB, 2)
    assert eve is not None
    assert eve.role is PersonRole.VIEWER
    allowed = people(MAIN_SPEC, 1)
    assert allowed is not None
    assert allowed.role is PersonRole.USER
    assert people.operators(TELEGRAM) == {7}
    named = people_of(
        anna={"role": "manager", "matrix": ("@a:h",)}, eve={"role": "user", "matrix": ("@e:h",)}
    )
    assert named.operators(MATRIX) == {"@a:h"}


def test_a_daemon_without_a_bot_knows_nothing_of_platforms() -> None:
    code = (
        "import sys, agentsup.daemon.main\n"
        "lives = {f'agentsup.channels.{name}.life' for name in ('telegram', 'matrix')}\n"
        "heavy = {'telegram', 'httpx', 'markdown_it'} | lives\n"
        "sys.exit(', '.join(heavy & sys.modules.keys()) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "spec, user_id, role",
    [
        (MAIN_SPEC, "@one:h", PersonRole.OPERATOR),
        (BOB, "@two:h", PersonRole.OPERATOR),
        (BOB, "@three:h", PersonRole.USER),
        (BOB, "@one:h", None),
        (MAIN_SPEC, "@THREE:h", None),
    ],
)
def test_over_matrix_the_same_holds(spec: AgentSpec, user_id: str, role: PersonRole | None) -> None:
    found = people_of().matrix(spec, user_id)
    assert (found.role if found else None) == role


def test_over_matrix_a_person_has_the_language_that_is_said_of_them() -> None:
    people = people_of(
        anna={"role": "viewer", "matrix": ("@two:h",), "language": "fr"},
        eve={"matrix": ("@eve:h",)},
    )
    anna, eve = people.matrix(BOB, "@two:h"), people.matrix(BOB, "@eve:h")
    three = people.matrix(BOB, "@three:h")
    assert anna is not None
    assert eve is not None
    assert three is not None
    assert (anna.subject, anna.role, anna.language) == ("anna", PersonRole.VIEWER, "fr")
    assert (eve.subject, eve.role, eve.language) == ("eve", PersonRole.USER, "de")
    assert (three.subject, three.role, three.language) == (
        "matrix:@three:h",
        PersonRole.USER,
        "de",
    )
