"""Setting up what agents think with, and main's first bot, while the daemon runs. For operators."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from agentsup.model.control import OfferedModels
from agentsup.model.principal import Principal


@dataclass(frozen=True, slots=True)
class OfferedProvider:
    """A provider that can be chosen."""

    name: str
    title: str
    base_url: str
    """Its address; empty if only the person knows it."""
    needs_key: bool
    keys_at: str
    """The page where one gets a key, or empty."""
    has_key: bool
    """Whether the daemon has a key for it, so that none need be typed."""


@dataclass(frozen=True, slots=True)
class OfferedProgram:
    """A coding agent that is installed and can be chosen as the engine."""

    name: str
    title: str
    state: str
    """How it is signed in, or that it is not."""
    sign_in: str
    """What to do to sign in; empty if it is."""


@dataclass(frozen=True, slots=True)
class RestartInfo:
    """The thing that restarts the daemon, and the command that installs a service."""

    by: str
    """``systemd``, ``container``, ``parent`` or ``nothing``."""
    command: str


@dataclass(frozen=True, slots=True)
class ModelDraft:
    """The person's choices so far. Without a key, the one that the daemon has is used."""

    provider: str
    base_url: str = ""
    key: str = field(default="", repr=False)
    model: str = ""


@dataclass(frozen=True, slots=True)
class TriedModel:
    """The result of one short request. ``usd`` is None if its price is not known."""

    model: str
    input_tokens: int
    output_tokens: int
    seconds: float
    usd: float | None
    problem: str = ""
    """That its server serves too little context, with what mends it."""


@dataclass(frozen=True, slots=True)
class BotDraft:
    """A bot's token, and who its owner is; without a number the owner is let in by pairing."""

    token: str = field(repr=False)
    person: str = ""
    telegram_id: int | None = None


class Setup(Protocol):
    """The steps, each of which checks what it is given. All raise ``Forbidden`` for anybody but an
    operator, ``BadRequest`` for what can't be right, and ``EngineFailed`` with what to do if the
    provider refuses."""

    def providers(self, by: Principal) -> tuple[OfferedProvider, ...]:
        """The providers, in the order in which they are offered."""

    async def programs(self, by: Principal) -> tuple[OfferedProgram, ...]:
        """The coding agents that are installed where the daemon looks."""

    async def use_program(self, name: str, by: Principal) -> tuple[str, ...]:
        """Let a coding agent be the engine of all agents that name none of their own; returns the
        names of the others. Raises ``NotFound``, ``ConfigError`` and ``Conflict``."""

    async def restart_info(self, by: Principal) -> RestartInfo:
        """The thing that restarts the daemon when it ends."""

    async def add_operator(self, person: str, telegram_id: int | None, by: Principal) -> None:
        """Write who somebody is, as an operator. Raises ``ConfigError`` and ``Conflict``."""

    async def models(self, wanted: ModelDraft, by: Principal) -> OfferedModels:
        """Sign in, and list the models."""

    async def try_model(self, wanted: ModelDraft, by: Principal) -> TriedModel:
        """Make one short request."""

    async def use_model(self, wanted: ModelDraft, by: Principal) -> None:
        """Keep the key in a file, and let agents think with the model. Raises ``ConfigError`` and
        ``Conflict`` if the files can't be edited."""

    async def use_bot(self, wanted: BotDraft, by: Principal) -> str:
        """Ask Telegram whether it knows the bot, keep its token in a file and let main use it.
        Returns its user name."""
