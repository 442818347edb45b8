"""Who the people are: platform ids, the persons behind them, and what these may do."""

from __future__ import annotations

from collections.abc import Callable

from agentsup.channels.matrix.place import parse as matrix_place
from agentsup.channels.telegram.place import parse as telegram_place
from agentsup.config.snapshot import ConfigSnapshot
from agentsup.model.agent import MAIN, AgentSpec
from agentsup.model.principal import OPERATORS, PERSON_MARK, PersonRole, Principal, PrincipalKind

_PLATFORMS = ("telegram", "matrix")


class People:
    """Implements the ``People`` ports of the channels from ``[people]`` and each agent's lists.

    A person of ``[people]`` may talk to every agent, in that person's role; an id of an agent's
    ``allowed_user_ids`` or ``matrix.allowed_users`` to that agent, as a user. With no ``[people]``
    at all, those whom main allows are the operators.
    """

    def __init__(self, snapshot: Callable[[], ConfigSnapshot]) -> None:
        self._snapshot = snapshot

    def __call__(self, spec: AgentSpec, user_id: int) -> Principal | None:
        """The person behind a Telegram user id for this agent, or None for a stranger."""
        people = self._snapshot().settings.people
        for name, person in people.items():
            if user_id in person.telegram:
                return Principal(PrincipalKind.PERSON, name, name, person.level)
        if user_id not in spec.allowed_user_ids:
            return None
        is_operator = not people and user_id in self._main_ids()
        role = PersonRole.OPERATOR if is_operator else PersonRole.USER
        subject = f"telegram:{user_id}"
        return Principal(PrincipalKind.PERSON, subject, subject, role)

    def matrix(self, spec: AgentSpec, user_id: str) -> Principal | None:
        """The person behind a Matrix user id for this agent, or None for a stranger."""
        people = self._snapshot().settings.people
        language = spec.matrix.language or ""
        for name, person in people.items():
            if user_id in person.matrix:
                said = person.language or language
                return Principal(PrincipalKind.PERSON, name, name, person.level, language=said)
        if user_id not in spec.matrix.allowed_users:
            return None
        is_operator = not people and user_id in self._main_matrix()
        role = PersonRole.OPERATOR if is_operator else PersonRole.USER
        subject = f"matrix:{user_id}"
        return Principal(PrincipalKind.PERSON, subject, subject, role, language=language)

    def allows(self, agent: str, channel: str, conversation: str, person: str) -> bool:
        """Whether an agent may talk in a conversation: with its people, or in its groups and rooms.
        The page and the console are this machine's own."""
        spec = self._snapshot().find(agent)
        if channel not in _PLATFORMS or spec is None:
            return spec is not None
        if channel == "matrix":
            is_own = matrix_place(conversation).room_id in spec.matrix.allowed_rooms
            return is_own or self._is_known(spec, person)
        chat_id = telegram_place(conversation).chat_id
        if chat_id < 0:
            return chat_id in spec.allowed_group_ids
        return self(spec, chat_id) is not None

    def _is_known(self, spec: AgentSpec, person: str) -> bool:
        subject = person.removeprefix(PERSON_MARK)
        users = {f"matrix:{each}" for each in spec.matrix.allowed_users}
        return (
            person == OPERATORS or subject in users or subject in self._snapshot().settings.people
        )

    def operator_ids(self) -> frozenset[int]:
        """Telegram ids of those who may be told what goes wrong."""
        people = self._snapshot().settings.people
        if not people:
            return frozenset(self._main_ids())
        return frozenset(
            each
            for person in people.values()
            if person.level >= PersonRole.OPERATOR
            for each in person.telegram
        )

    def operator_names(self) -> frozenset[str]:
        """Matrix ids of those who may be told what goes wrong."""
        people = self._snapshot().settings.people
        if not people:
            return frozenset(self._main_matrix())
        return frozenset(
            each
            for person in people.values()
            if person.level >= PersonRole.OPERATOR
            for each in person.matrix
        )

    def _main_ids(self) -> tuple[int, ...]:
        main = self._snapshot().find(MAIN)
        return main.allowed_user_ids if main is not None else ()

    def _main_matrix(self) -> tuple[str, ...]:
        main = self._snapshot().find(MAIN)
        return main.matrix.allowed_users if main is not None else ()
