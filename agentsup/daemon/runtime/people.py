"""People: platform ids, the persons they belong to, their roles, and the edit of [people] that lets a
stranger in: a pure plan, and a check of its result."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Final

from agentsup.channels.matrix import parse as matrix_address
from agentsup.channels.telegram import parse as telegram_address
from agentsup.config import ConfigSnapshot, with_settings
from agentsup.model.agent import MAIN, AgentSpec
from agentsup.model.errors import BadRequest, Conflict, Forbidden
from agentsup.model.pairing import Stranger
from agentsup.model.platforms import MATRIX, PLATFORMS, TELEGRAM, PlatformSpec
from agentsup.model.principal import OPERATORS, PERSON_MARK, PersonRole, Principal, PrincipalKind

_PLATFORMS = frozenset(each.name for each in PLATFORMS)
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_GUEST: Final = "guest"


class People:
    """Implements the ``People`` ports of the channels from ``[people]`` and each agent's lists.

    A person of ``[people]`` may talk to every agent, or to those that ``agents`` names, in that
    person's role. An id in an agent's
    ``allowed_user_ids`` or ``matrix.allowed_users`` may talk to that agent, as a user. Without any
    ``[people]``, those whom main allows are the operators.
    """

    def __init__(self, snapshot: Callable[[], ConfigSnapshot]) -> None:
        self._snapshot = snapshot

    def __call__(self, spec: AgentSpec, user_id: int) -> Principal | None:
        """The person behind a Telegram user id for this agent, or None for a stranger."""
        return self._person(TELEGRAM, spec, user_id)

    def matrix(self, spec: AgentSpec, user_id: str) -> Principal | None:
        """The person behind a Matrix user id for this agent, or None for a stranger."""
        found = self._person(MATRIX, spec, user_id)
        if found is None:
            return None
        person = self._snapshot().settings.people.get(found.subject)
        own = person.language if person is not None else ""
        return replace(found, language=own or spec.matrix.language or "")

    def _person(
        self, platform: PlatformSpec, spec: AgentSpec, user_id: int | str
    ) -> Principal | None:
        people = self._snapshot().settings.people
        for name, person in people.items():
            if user_id in getattr(person, platform.name) and person.may_use(spec.name):
                return Principal(PrincipalKind.PERSON, name, name, person.level)
        if user_id not in attrgetter(platform.people)(spec):
            return None
        is_operator = not people and user_id in self._of_main(platform)
        role = PersonRole.OPERATOR if is_operator else PersonRole.USER
        subject = f"{platform.name}:{user_id}"
        return Principal(PrincipalKind.PERSON, subject, subject, role)

    def role_now(self, subject: str) -> PersonRole | None:
        """The current role of a person, by their principal's subject; None if on no list.

        Of the roles at several agents it is the highest, and it holds for all agents.
        """
        snapshot = self._snapshot()
        if (person := snapshot.settings.people.get(subject)) is not None:
            return person.level
        channel, _, user_id = subject.partition(":")
        specs, found = snapshot.specs.values(), list[Principal | None]()
        if channel == "telegram" and user_id.isdecimal():
            found = [self(spec, int(user_id)) for spec in specs]
        elif channel == "matrix":
            found = [self.matrix(spec, user_id) for spec in specs]
        return max((each.role for each in found if each is not None), default=None)

    def allows(self, agent: str, channel: str, conversation: str, person: str) -> bool:
        """Whether an agent may talk in a conversation: with its people, or in its groups and rooms.

        Always on the web page and the console, which are this machine's own.
        """
        spec = self._snapshot().find(agent)
        if channel not in _PLATFORMS or spec is None:
            return spec is not None
        if channel == "matrix":
            is_own = matrix_address(conversation).room_id in spec.matrix.allowed_rooms
            return is_own or self._is_known(spec, person)
        chat_id = telegram_address(conversation).chat_id
        if chat_id < 0:
            return chat_id in spec.allowed_group_ids
        return self(spec, chat_id) is not None

    def _is_known(self, spec: AgentSpec, person: str) -> bool:
        subject = person.removeprefix(PERSON_MARK)
        users = {f"matrix:{each}" for each in spec.matrix.allowed_users}
        listed = self._snapshot().settings.people.get(subject)
        is_listed = listed is not None and listed.may_use(spec.name)
        return person == OPERATORS or subject in users or is_listed

    def operators(self, platform: PlatformSpec) -> frozenset[Any]:
        """The operators' ids on a platform; they may be told about failures."""
        people = self._snapshot().settings.people
        if not people:
            return frozenset(self._of_main(platform))
        return frozenset(
            each
            for person in people.values()
            if person.level >= PersonRole.OPERATOR
            for each in getattr(person, platform.name)
        )

    def _of_main(self, platform: PlatformSpec) -> tuple[Any, ...]:
        """The ids of main's people."""
        main = self._snapshot().find(MAIN)
        found: tuple[Any, ...] = () if main is None else attrgetter(platform.people)(main)
        return found


def language_of_operators(snapshot: ConfigSnapshot) -> str:
    """The language of the first operator in [people] who has named one; else empty."""
    people = snapshot.settings.people.values()
    return next((p.language for p in people if p.level >= PersonRole.OPERATOR and p.language), "")


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


def plan_edit(
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


def check_edit(
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
