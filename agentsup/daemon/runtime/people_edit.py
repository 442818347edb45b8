"""The edit of [people] that lets a stranger in: a pure plan, and a check of its result."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from agentsup.config import ConfigSnapshot, with_settings
from agentsup.daemon.runtime.people import People
from agentsup.model.agent import MAIN
from agentsup.model.errors import BadRequest, Conflict, Forbidden
from agentsup.model.pairing import Stranger
from agentsup.model.platforms import PLATFORMS
from agentsup.model.principal import PersonRole, Principal

_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_GUEST: Final = "guest"


@dataclass(frozen=True, slots=True)
class PeopleEdit:
    """Tables of config.toml with the keys to set in each, and who is let in by them."""

    person: str
    role: PersonRole
    agents: tuple[str, ...]
    tables: tuple[tuple[str, Mapping[str, Any]], ...]

    def apply(self, text: str) -> str:
        """The text of config.toml after the edit. Raises ``ConfigError``."""
        for table, values in self.tables:
            text = with_settings(text, table, values)
        return text


def plan(
    snapshot: ConfigSnapshot,
    stranger: Stranger,
    agent: str,
    by: Principal,
    *,
    role: PersonRole | None,
    name: str,
) -> PeopleEdit:
    """Plan the edit by which ``by`` lets the stranger in at ``agent``.

    A user or viewer may then talk to that agent alone. ``name`` of a person who is there adds the id
    to that person, whose role and agents stay. A name that a stranger chose is never used so.
    Raises ``BadRequest``, ``Conflict`` and ``Forbidden``.
    """
    people = snapshot.settings.people
    number = _id_of(stranger)
    if name and name in people:
        known = people[name]
        if role is not None and role is not known.level:
            raise Conflict(
                f"{name} is there as {known.role}; leave the role out, or change it in config.toml"
            )
        _check_role(known.level, by)
        ids = [*getattr(known, stranger.channel), number]
        table = (f"people.{name}", {stranger.channel: ids})
        return PeopleEdit(name, known.level, known.agents, (table,))
    wanted = PersonRole.USER if role is None else role
    _check_role(wanted, by)
    person = _checked(name) if name else _free_name(stranger.name, people)
    values: dict[str, Any] = {"role": wanted.name.lower(), stranger.channel: [number]}
    agents = (agent,) if wanted < PersonRole.OPERATOR else ()
    if agents:
        values["agents"] = list(agents)
    first = () if people else tuple(_operators_of_main(snapshot))
    return PeopleEdit(person, wanted, agents, (*first, (f"people.{person}", values)))


def check(
    edit: PeopleEdit, stranger: Stranger, agent: str, before: ConfigSnapshot, after: ConfigSnapshot
) -> None:
    """Raise ``Conflict`` unless the edit lets in exactly this person, and takes no operator's
    rights. Something else may count more than the file, such as a variable."""
    spec = after.find(agent)
    found = (
        None if spec is None else _principal(after, stranger.channel, spec.name, _id_of(stranger))
    )
    is_right = found is not None and (found.subject, found.role) == (edit.person, edit.role)
    for platform in PLATFORMS:
        lost = People(lambda: before).operators(platform) - People(lambda: after).operators(
            platform
        )
        is_right = is_right and not lost
    if not is_right:
        raise Conflict(
            "config.toml can't be edited so that it lets in this person and nobody else; write "
            f"[people.{edit.person}] there yourself"
        )


def known_as(snapshot: ConfigSnapshot, stranger: Stranger, agent: str) -> Principal | None:
    """The stranger's principal for the agent by now; None if still a stranger."""
    return _principal(snapshot, stranger.channel, agent, _id_of(stranger))


def _principal(
    snapshot: ConfigSnapshot, channel: str, agent: str, user_id: int | str
) -> Principal | None:
    people, spec = People(lambda: snapshot), snapshot.require(agent)
    if isinstance(user_id, int):
        return people(spec, user_id)
    return people.matrix(spec, user_id)


def _id_of(stranger: Stranger) -> int | str:
    return int(stranger.user_id) if stranger.channel == "telegram" else stranger.user_id


def _check_role(role: PersonRole, by: Principal) -> None:
    if not by.is_operator or role > by.role:
        raise Forbidden("only an operator lets people in, up to the own role")


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise BadRequest(
            f"{name[:64]!r} can't be a person's name here: small letters, digits, - and _",
            field="name",
        )
    return name


def _free_name(shown: str, people: Mapping[str, object]) -> str:
    """A name made of the one that the platform shows, which nobody has yet."""
    plain = unicodedata.normalize("NFKD", shown).encode("ascii", "ignore").decode().casefold()
    made = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:24].strip("-")
    base = made if _NAME.fullmatch(made) else _GUEST
    taken = {each.casefold() for each in people}
    number, name = 1, base
    while name in taken:
        number += 1
        name = f"{base}-{number}"
    return name


def _operators_of_main(snapshot: ConfigSnapshot) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The entries that keep the rights of those whom main's own lists made operators.

    They lose these rights with the first person in [people].
    """
    spec = snapshot.specs[MAIN]
    for platform in PLATFORMS:
        for number, each in enumerate(attrgetter(platform.people)(spec), start=1):
            name = f"{platform.name}-{each if isinstance(each, int) else number}"
            yield f"people.{name}", {"role": "operator", platform.name: [each]}
