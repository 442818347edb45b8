"""Principals: who is acting. Stored with every message, command and decision; never from a body."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any


class PrincipalKind(StrEnum):
    PERSON = "person"
    AGENT = "agent"
    RUN = "run"
    OPERATOR = "operator"
    SYSTEM = "system"


class PersonRole(IntEnum):
    """What a person may do; each role includes the lower ones."""

    VIEWER = 0
    USER = 1
    OPERATOR = 2
    MANAGER = 3


OPERATORS = "operator"
"""The ``person`` of all work that operators ask for."""
PERSON_MARK = "person:"
"""The prefix of anybody else's ``person``, so that nobody can have the operators' name."""
NOBODY = "nobody"
"""The ``person`` of a turn that no person caused."""


def is_one_persons(person: str) -> bool:
    """Whether the work of ``person`` belongs to one person.

    False for the operators, who count as one party, and for work of nobody.
    """
    return person not in ("", NOBODY, OPERATORS)


@dataclass(frozen=True, slots=True)
class Principal:
    """The acting party. ``subject`` is the person's name, the agent's ``agent_id`` or the run's
    id."""

    kind: PrincipalKind
    subject: str
    name: str = ""
    role: PersonRole = PersonRole.USER
    language: str = ""
    """The person's language in the platform's form (``de``, ``pt-br``); empty if unknown."""
    behalf: str = ""
    """For an agent in a turn: the ``person`` for whom the turn works, or ``NOBODY``. Empty: the
    agent acts outside of any turn."""
    asker: str | None = ""
    """For an agent that begins work outside of a person's own turn: the subject of the person who
    asked. Empty for one without a name (the console), None if no longer known."""

    @property
    def label(self) -> str:
        return self.name or self.subject

    @property
    def is_operator(self) -> bool:
        return self.kind in (PrincipalKind.OPERATOR, PrincipalKind.SYSTEM) or (
            self.kind is PrincipalKind.PERSON and self.role >= PersonRole.OPERATOR
        )

    @property
    def person(self) -> str:
        """The person to whom these words and this work belong.

        ``operator`` for all operators together, who may see everything of each other anyway;
        ``person:<subject>`` for anybody else; for an agent the person for whom it acts; empty for
        nobody.
        """
        if self.kind is PrincipalKind.PERSON and self.role < PersonRole.OPERATOR:
            return f"{PERSON_MARK}{self.subject}"
        if self.kind in (PrincipalKind.PERSON, PrincipalKind.OPERATOR):
            return OPERATORS
        return self.behalf

    @property
    def asker_name(self) -> str | None:
        """The subject of the person who asks; empty for one without a name, None if unknown."""
        return self.subject if self.kind is PrincipalKind.PERSON else self.asker

    def to_json(self) -> dict[str, Any]:
        data: dict[str, Any] = {
            "kind": self.kind.value,
            "subject": self.subject,
            "name": self.name,
            "role": int(self.role),
        }
        if self.language:
            data["language"] = self.language
        if self.behalf:
            data["behalf"] = self.behalf
        if self.asker != "":
            data["asker"] = self.asker
        return data

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Principal:
        kind, role = PrincipalKind(data["kind"]), PersonRole(data.get("role", PersonRole.USER))
        return cls(**{**data, "kind": kind, "role": role})


def name_of_person(person: str) -> str:
    """A ``person`` as people read it. The prefix stays if somebody has the name of the operators or
    of nobody."""
    name = person.removeprefix(PERSON_MARK)
    return person if person != name in (OPERATORS, NOBODY) else name or NOBODY


OPERATOR = Principal(PrincipalKind.OPERATOR, "operator", "operator", PersonRole.MANAGER)
SYSTEM = Principal(PrincipalKind.SYSTEM, "agentsup", "agentsup", PersonRole.MANAGER)
