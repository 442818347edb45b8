"""Pairing: a stranger asks to be let in with a short code, and an operator decides.

The code opens nothing by itself: only an operator can use it. It shows which of several strangers is
meant, since anybody can take anybody's display name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Protocol

from agentsup.model.principal import PersonRole, Principal

OPEN_MS: Final = 600_000
"""Time for which a request is open."""
ALPHABET: Final = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
"""Characters of codes, without those that look alike."""
CODE_CHARS: Final = 8
_HALF: Final = CODE_CHARS // 2


def shown_code(code: str) -> str:
    """The code as people read it, in two groups."""
    return f"{code[:_HALF]}-{code[_HALF:]}"


def code_in(text: str) -> str:
    """The code that somebody typed, in any case and grouping."""
    return re.sub(r"[\s-]", "", text).upper()[: CODE_CHARS + 1]


@dataclass(frozen=True, slots=True)
class Stranger:
    """A sender who is not known to the agent. ``name`` is what the platform shows: the stranger
    chose it."""

    channel: str
    user_id: str
    name: str
    conversation: str
    language: str = ""

    @property
    def shown(self) -> str:
        """The stranger as operators read of them: the name in quotes, then what is certain."""
        certain = "".join(each if each.isprintable() else "·" for each in self.user_id)
        return f"“{self.name}” ({self.channel} {certain})"


@dataclass(frozen=True, slots=True)
class PairingRequest:
    """An open request of a stranger to be let in by one agent."""

    code: str
    agent_id: str
    stranger: Stranger
    asked_at: int

    @property
    def expires_at(self) -> int:
        """Wall ms at which the code ends."""
        return self.asked_at + OPEN_MS

    def is_open(self, at: int) -> bool:
        """Whether it may be decided at wall ms ``at``. Not before it was made either: the clock was
        set back then, and nobody knows how old it is."""
        return self.asked_at <= at < self.expires_at


@dataclass(frozen=True, slots=True)
class LetIn:
    """A stranger who is let in now."""

    request: PairingRequest
    agent: str
    person: str
    """The name in [people]."""
    role: PersonRole
    is_everywhere: bool
    """Whether the person may talk to every agent, or to that one alone."""


class Asking(Protocol):
    """A bot's handling of strangers."""

    def is_on(self) -> bool:
        """Whether a stranger gets a code."""

    async def asked(self, request: PairingRequest) -> None:
        """Notify operators of a new request, which is stored."""


class NoPairing:
    """Strangers get no answer."""

    def is_on(self) -> bool:
        return False

    async def asked(self, request: PairingRequest) -> None:
        """Never called."""


class Pairing(Protocol):
    """Operators' queries and decisions about strangers."""

    async def requests(self) -> tuple[tuple[str, PairingRequest], ...]:
        """The open requests, oldest first, each with the name of the agent."""

    async def let_in(
        self, code: str, by: Principal, *, role: PersonRole | None = None, name: str = ""
    ) -> LetIn:
        """Put the stranger into [people]. ``name`` of a person who is there adds the id to that
        person, whose role stays.

        Raises ``NotFound`` for a code that is not open, whatever the reason, ``Forbidden`` for a
        role above one's own, ``BadRequest`` for a wrong name, and ``Conflict`` and ``ConfigError``
        if config.toml can't be edited.
        """

    async def refuse(self, code: str, by: Principal) -> PairingRequest:
        """Refuse the stranger, who is not told and gets no code for a month. Raises ``NotFound``."""
