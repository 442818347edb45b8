"""Whom an edit of [people] lets in, and whom it never does."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from agentsup.config import ConfigSnapshot, Home, load
from agentsup.daemon.runtime.people import People, PeopleEdit, check_edit, known_as, plan_edit
from agentsup.model.errors import BadRequest, ConfigError, Conflict, Forbidden
from agentsup.model.pairing import Stranger
from agentsup.model.platforms import MATRIX, TELEGRAM
from agentsup.model.principal import OPERATOR, PersonRole, Principal, PrincipalKind

EVE = Stranger("telegram", "77", "Eve Müller", "77")
AGENTS = (
    '[{"name": "main", "allowed_user_ids": %s, "matrix": {"allowed_users": %s}}, {"name": "bob"}]'
)


@dataclass
class Fixture:
    root: Path

    def write(self, config: str = "", owners: str = "[]", matrix: str = "[]") -> None:
        (self.root / "config.toml").write_text(config)
        (self.root / "agents.json").write_text(AGENTS % (owners, matrix))

    def now(self, config: str | None = None) -> ConfigSnapshot:
        if config is not None:
            (self.root / "config.toml").write_text(config)
        return load(Home(self.root), environ={})

    def edit(
        self,
        stranger: Stranger = EVE,
        by: Principal = OPERATOR,
        role: PersonRole | None = None,
        name: str = "",
    ) -> tuple[PeopleEdit, ConfigSnapshot]:
        """Let the stranger in at bob; what holds then."""
        before = self.now()
        made = plan_edit(before, stranger, "bob", by, role=role, name=name)
        after = self.now(made.apply((self.root / "config.toml").read_text()))
        check_edit(made, stranger, "bob", before, after)
        return made, after

    @property
    def people(self) -> dict[str, object]:
        text = (self.root / "config.toml").read_text()
        found: dict[str, object] = tomllib.loads(text)["people"]
        return found


@pytest.fixture
def house(tmp_path: Path) -> Fixture:
    made = Fixture(tmp_path)
    made.write('# mine\n[people.me]\nrole = "operator"\ntelegram = [5]\n')
    return made


def test_a_user_may_talk_to_that_agent_alone(house: Fixture) -> None:
    made, after = house.edit()
    assert (made.person, made.role) == ("eve-muller", PersonRole.USER)
    found = known_as(after, EVE, "bob")
    assert found is not None
    assert (found.subject, found.role) == ("eve-muller", PersonRole.USER)
    assert known_as(after, EVE, "main") is None
    assert "# mine" in (house.root / "config.toml").read_text()


def test_an_operator_may_talk_to_all_of_them(house: Fixture) -> None:
    made, after = house.edit(role=PersonRole.OPERATOR, name="anna")
    assert (made.person, made.agents) == ("anna", ())
    found = known_as(after, EVE, "main")
    assert found is not None
    assert found.role is PersonRole.OPERATOR


def test_nobody_loses_rights_by_the_first_person(house: Fixture) -> None:
    house.write(owners="[5, 6]", matrix='["@boss:home"]')
    _, after = house.edit()
    people = People(lambda: after)
    assert people.operators(TELEGRAM) == {5, 6}
    assert people.operators(MATRIX) == {"@boss:home"}
    bob = after.require("bob")
    found = people(bob, 77)
    assert found is not None
    assert found.role is PersonRole.USER


@pytest.mark.parametrize("shown", ["me", "Me", " ME ", "ｍｅ"])
def test_a_name_that_the_stranger_chose_is_nobody_elses(house: Fixture, shown: str) -> None:
    made, after = house.edit(Stranger("telegram", "77", shown, "77"))
    assert made.person == "me-2"
    assert People(lambda: after).operators(TELEGRAM) == {5}


@pytest.mark.parametrize(
    "shown", ["", "  ", "–", "Ευα", "1", "]\n[people.x]\nrole='manager'", '"; drop', "../../x"]
)
def test_any_shown_name_makes_a_plain_one(house: Fixture, shown: str) -> None:
    made, _ = house.edit(Stranger("telegram", "77", shown, "77"))
    assert set(made.person) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_")
    assert set(house.people) == {"me", made.person}


def test_an_account_is_added_to_a_person_by_an_operators_word_alone(house: Fixture) -> None:
    made, after = house.edit(Stranger("matrix", "@me:home", "x", "!r"), name="me")
    assert (made.person, made.role) == ("me", PersonRole.OPERATOR)
    assert People(lambda: after).operators(MATRIX) == {"@me:home"}
    assert house.people["me"] == {"role": "operator", "telegram": [5], "matrix": ["@me:home"]}
    with pytest.raises(Conflict, match="is there as operator"):
        house.edit(name="me", role=PersonRole.USER)


def test_nobody_gives_more_than_they_have(house: Fixture) -> None:
    def by(role: PersonRole) -> Principal:
        return Principal(PrincipalKind.PERSON, "x", "x", role)

    for own, given in (
        (PersonRole.OPERATOR, PersonRole.MANAGER),
        (PersonRole.USER, PersonRole.USER),
        (PersonRole.VIEWER, PersonRole.VIEWER),
    ):
        with pytest.raises(Forbidden):
            house.edit(by=by(own), role=given)
    with pytest.raises(Forbidden):
        house.edit(by=by(PersonRole.USER), name="me")
    assert list(house.people) == ["me"]
    house.edit(by=by(PersonRole.OPERATOR), role=PersonRole.OPERATOR)


@pytest.mark.parametrize("name", ["A", "a b", "é", "x" * 33, "[x]", "-a", "a.b"])
def test_a_wrong_name_is_refused(house: Fixture, name: str) -> None:
    with pytest.raises(BadRequest, match="can't be a person's name"):
        house.edit(name=name)


def test_a_file_that_can_t_be_edited_is_left(house: Fixture) -> None:
    house.write('people = { me = { role = "operator", telegram = [5] } }\n')
    with pytest.raises(ConfigError, match=r"people\.eve-muller"):
        house.edit()


def test_an_edit_that_lets_in_another_is_noticed(house: Fixture) -> None:
    before = house.now()
    made = plan_edit(before, EVE, "bob", OPERATOR, role=None, name="")
    with pytest.raises(Conflict, match="nobody else"):
        check_edit(made, EVE, "bob", before, before)
    widened = house.now('[people.eve-muller]\nrole = "operator"\ntelegram = [77]\n')
    with pytest.raises(Conflict, match="nobody else"):
        check_edit(made, EVE, "bob", before, widened)
