"""Bearer tokens: the operator's (kept in the home), one per agent and boot, one per run.

Only digests are held, so that a memory dump or a log of this object shows no token; a lookup
compares digests of equal length and tells nothing by its time.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from agentsup.kit.entropy import Entropy
from agentsup.kit.files import write_atomic
from agentsup.model.control import TokenIdentity
from agentsup.model.errors import ConfigError
from agentsup.model.principal import OPERATOR, Principal, PrincipalKind


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


class TokenBook:
    """Implements ``model.control.Tokens`` and ``agents.surroundings.RunTokens``."""

    def __init__(self, entropy: Entropy, operator_token: str) -> None:
        self._entropy = entropy
        self._known: dict[bytes, TokenIdentity] = {_digest(operator_token): TokenIdentity(OPERATOR)}
        self._agents: dict[str, bytes] = {}
        self.operator_key = hashlib.sha256(b"key:" + _digest(operator_token)).hexdigest()
        """Changes with the operator's token, and tells nothing of it."""

    def identify(self, token: str) -> TokenIdentity | None:
        return self._known.get(_digest(token))

    def issue_run(self, agent_id: str, agent_name: str, message_id: str) -> str:
        """A token that stands for one turn of an agent; revoked with it."""
        token = self._entropy.token()
        principal = Principal(PrincipalKind.RUN, agent_id, agent_name)
        self._known[_digest(token)] = TokenIdentity(principal, agent_id, message_id)
        return token

    def issue_agent(self, agent_id: str, agent_name: str) -> str:
        """A token that stands for an agent during this boot; replaces its earlier one."""
        self.revoke_agent(agent_id)
        token = self._entropy.token()
        principal = Principal(PrincipalKind.AGENT, agent_id, agent_name)
        self._known[_digest(token)] = TokenIdentity(principal, agent_id)
        self._agents[agent_id] = _digest(token)
        return token

    def revoke(self, token: str) -> None:
        self._known.pop(_digest(token), None)

    def revoke_agent(self, agent_id: str) -> None:
        """End an agent's token and those of its runs."""
        self._agents.pop(agent_id, None)
        gone = [d for d, identity in self._known.items() if identity.agent_id == agent_id]
        for digest in gone:
            del self._known[digest]


def operator_token(path: Path, entropy: Entropy) -> str:
    """The operator's token from ``path``, made at the first start (mode 0600).

    Raises ``ConfigError`` where the file is unreadable, empty or readable by others.
    """
    try:
        mode = path.stat().st_mode & 0o777
        token = path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        token = entropy.token()
        write_atomic(path, (token + "\n").encode(), mode=0o600)
        return token
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"the operator's token can't be read: {error}",
            path=str(path),
            hint="delete the file; a new one is made at the next start",
        ) from error
    if len(token) < 16:
        raise ConfigError(
            "the operator's token is empty or too short",
            path=str(path),
            hint="delete the file; a new one is made at the next start",
        )
    if mode & 0o077:
        raise ConfigError(
            f"the operator's token can be read by others (mode {mode:o})",
            path=str(path),
            hint=f"chmod 600 {path}",
        )
    return token
