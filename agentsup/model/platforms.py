"""The chat platforms on which agents have bots: one description of each.

The daemon, the configuration and the checks read this table. What a platform does is its package
in ``agentsup.channels`` and its ``Transport`` in the daemon.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from agentsup.model.secret import Secret

if TYPE_CHECKING:
    from agentsup.model.agent import AgentSpec


@dataclass(frozen=True, slots=True)
class AccountSecret:
    """A secret of a bot's account. ``field`` is its path in an agent's entry."""

    field: str
    unique_as: str = ""
    """How messages call the secret if each agent must have another one; empty if agents may share
    it."""

    def of(self, spec: AgentSpec) -> Secret | None:
        """The secret of that agent, or None."""
        found: Secret | None = attrgetter(self.field)(spec)
        return found


@dataclass(frozen=True, slots=True)
class PlatformSpec:
    """One platform. Fields of an agent's entry are named by their paths, such as ``matrix.user_id``.

    The package of a platform is ``agentsup.channels.NAME``, and the same name is an extra of the
    distribution and a field of ``[people]``.
    """

    name: str
    title: str
    library: str
    """The module that a bot needs, of the distribution ``distribution``; both empty: none."""
    distribution: str
    is_idempotent: bool
    """Whether a send can be repeated by its key."""
    account: str
    """The field that says which account the bot has."""
    account_name: str
    """How messages call the account, if it is no secret and each agent must have another one; else
    empty."""
    secrets: tuple[AccountSecret, ...]
    required: tuple[tuple[tuple[str, ...], str], ...]
    """Further fields that an entry with an account must have. Each item is a group of fields, one
    of which must be set, and the error if none is."""
    needs: str
    """All that a bot needs, in words."""
    needs_new_bot: tuple[str, ...]
    """The fields that a bot can't change while it runs."""
    people: str
    """The field that lists who may talk to the agent."""
    people_hint: str
    """The people who are listed there, in words."""
    remedy: str
    """The change of the entry after which a refused bot is accepted again."""

    @property
    def missing_library(self) -> str:
        """The error if the library is not installed."""
        return (
            f"{self.distribution} is not installed; install agentsup[{self.name}] and start again"
        )

    def lacks(self, spec: AgentSpec) -> tuple[str, ...]:
        """The errors about fields that an agent with an account still lacks; empty if it has no
        account."""
        if not attrgetter(self.account)(spec):
            return ()
        return tuple(
            problem
            for fields, problem in self.required
            if not any(attrgetter(field)(spec) for field in fields)
        )

    def has_account(self, spec: AgentSpec) -> bool:
        """Whether the agent has an account there and all that is needed to sign in."""
        return bool(attrgetter(self.account)(spec)) and not self.lacks(spec)

    def wants(self, spec: AgentSpec) -> bool:
        """Whether the entry asks for a bot there that can sign in."""
        return self.name in spec.channels and self.has_account(spec)

    def identity(self, spec: AgentSpec) -> tuple[object, ...]:
        """The values of the fields that a bot can't change while it runs."""
        return tuple(attrgetter(field)(spec) for field in self.needs_new_bot)


TELEGRAM: Final = PlatformSpec(
    name="telegram",
    title="Telegram",
    library="telegram",
    distribution="python-telegram-bot",
    is_idempotent=False,
    account="telegram_token",
    account_name="",
    secrets=(AccountSecret("telegram_token", "Telegram token"),),
    required=(),
    needs="telegram_token",
    needs_new_bot=("telegram_token", "telegram_base_url", "telegram_backlog_hours"),
    people="allowed_user_ids",
    people_hint="Telegram user id",
    remedy="A changed token",
)
MATRIX: Final = PlatformSpec(
    name="matrix",
    title="Matrix",
    library="",
    distribution="",
    is_idempotent=True,
    account="matrix.user_id",
    account_name="Matrix user",
    secrets=(
        AccountSecret("matrix.access_token", "Matrix access token"),
        AccountSecret("matrix.password"),
    ),
    required=(
        (("matrix.homeserver",), "matrix.homeserver is missing"),
        (
            ("matrix.password", "matrix.access_token"),
            "the Matrix account has neither password nor access_token",
        ),
    ),
    needs="matrix.homeserver, matrix.user_id and matrix.access_token or matrix.password",
    needs_new_bot=(
        "matrix.homeserver",
        "matrix.user_id",
        "matrix.password",
        "matrix.access_token",
        "matrix.device_id",
        "matrix.backlog_hours",
    ),
    people="matrix.allowed_users",
    people_hint="Matrix user id (@name:server)",
    remedy="A changed access token or password",
)
PLATFORMS: Final = (TELEGRAM, MATRIX)
