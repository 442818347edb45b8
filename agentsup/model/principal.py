"""Who is acting. Stored on every message, command and decision; never taken from a body."""

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
"""The ``person`` of everything that operators ask for."""
PERSON_MARK = "person:"
"""Begins the ``person`` of anybody else, so that nobody can be named like the operators."""
NOBODY = "nobody"
"""For whom an agent acts in a turn that goes back to no person."""


def is_one_persons(person: str) -> bool:
    """Whether work of that ``person`` is one person's own: neither the operators', who are one
    party, nor nobody's."""
    return person not in ("", NOBODY, OPERATORS)


@dataclass(frozen=True, slots=True)
class Principal:
    """``subject`` is the person's name, the agent's ``agent_id`` or the run's id."""

    kind: PrincipalKind
    subject: str
    name: str = ""
    role: PersonRole = PersonRole.USER
    language: str = ""
    """What the person reads, as their platform names it (``de``, ``pt-br``); empty if unknown."""
    behalf: str = ""
    """Of an agent in a turn: the ``person`` whose work that is, or ``NOBODY``. Empty: the agent acts
    outside of any turn, as such."""

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
        """Whose words and work these are: ``operator`` for all operators together, who may see
        everything of each other anyway; ``person:<subject>`` for anybody else; of an agent the one
        it acts for; empty for nobody's."""
        if self.kind is PrincipalKind.PERSON and self.role < PersonRole.OPERATOR:
            return f"{PERSON_MARK}{self.subject}"
        if self.kind in (PrincipalKind.PERSON, PrincipalKind.OPERATOR):
            return OPERATORS
        return self.behalf

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
        return data

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Principal:
        return cls(
            kind=PrincipalKind(data["kind"]),
            subject=data["subject"],
            name=data.get("name", ""),
            role=PersonRole(data.get("role", PersonRole.USER)),
            language=data.get("language", ""),
            behalf=data.get("behalf", ""),
        )


def name_of_person(person: str) -> str:
    """A ``person`` as people read it; with its mark where somebody is called like the operators, or
    like nobody."""
    name = person.removeprefix(PERSON_MARK)
    return person if person != name in (OPERATORS, NOBODY) else name or NOBODY


OPERATOR = Principal(PrincipalKind.OPERATOR, "operator", "operator", PersonRole.MANAGER)
SYSTEM = Principal(PrincipalKind.SYSTEM, "agentsup", "agentsup", PersonRole.MANAGER)
