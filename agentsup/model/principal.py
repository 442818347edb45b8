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


@dataclass(frozen=True, slots=True)
class Principal:
    """``subject`` is the person's name, the agent's ``agent_id`` or the run's id."""

    kind: PrincipalKind
    subject: str
    name: str = ""
    role: PersonRole = PersonRole.USER
    language: str = ""
    """What the person reads, as their platform names it (``de``, ``pt-br``); empty if unknown."""

    @property
    def label(self) -> str:
        return self.name or self.subject

    @property
    def is_operator(self) -> bool:
        return self.kind in (PrincipalKind.OPERATOR, PrincipalKind.SYSTEM) or (
            self.kind is PrincipalKind.PERSON and self.role >= PersonRole.OPERATOR
        )

    def to_json(self) -> dict[str, Any]:
        data = {
            "kind": self.kind.value,
            "subject": self.subject,
            "name": self.name,
            "role": int(self.role),
        }
        return {**data, "language": self.language} if self.language else data

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Principal:
        return cls(
            kind=PrincipalKind(data["kind"]),
            subject=data["subject"],
            name=data.get("name", ""),
            role=PersonRole(data.get("role", PersonRole.USER)),
            language=data.get("language", ""),
        )


OPERATOR = Principal(PrincipalKind.OPERATOR, "operator", "operator", PersonRole.MANAGER)
SYSTEM = Principal(PrincipalKind.SYSTEM, "agentsup", "agentsup", PersonRole.MANAGER)
