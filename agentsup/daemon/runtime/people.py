"""People: platform ids, the persons they belong to, and these persons' roles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from typing import Any

from agentsup.channels.matrix import parse as matrix_address
from agentsup.channels.telegram import parse as telegram_address
from agentsup.config import ConfigSnapshot
from agentsup.model.agent import MAIN, AgentSpec
from agentsup.model.platforms import MATRIX, PLATFORMS, TELEGRAM, PlatformSpec
from agentsup.model.principal import OPERATORS, PERSON_MARK, PersonRole, Principal, PrincipalKind

_PLATFORMS = frozenset(each.name for each in PLATFORMS)


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
