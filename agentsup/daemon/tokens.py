"""Bearer tokens: the operator's (kept in the home), one per agent and boot, one per run.

Only digests are held, so that a memory dump or a log of this object shows no token; a lookup
compares digests of equal length and tells nothing by its time.
"""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
        self._operator = _digest(operator_token)
        self._known: dict[bytes, TokenIdentity] = {self._operator: TokenIdentity(OPERATOR)}
        self._agents: dict[str, bytes] = {}
        self._watchers: dict[bytes, set[Callable[[], None]]] = {}

    def operator_key(self) -> str:
        """Changes with the operator's token, and tells nothing of it."""
        return hashlib.sha256(b"key:" + self._operator).hexdigest()

    def replace_operator(self, token: str) -> None:
        """From now on ``token`` is the operator's, and the earlier one is nobody's."""
        earlier, self._operator = self._operator, _digest(token)
        self._known[self._operator] = TokenIdentity(OPERATOR)
        if earlier != self._operator:
            self._end(earlier)

    def identify(self, token: str) -> TokenIdentity | None:
        return self._known.get(_digest(token))

    @contextmanager
    def watched_by(self, token: str, watcher: Callable[[], None]) -> Iterator[None]:
        digest = _digest(token)
        watchers = self._watchers.setdefault(digest, set())
        watchers.add(watcher)
        try:
            yield
        finally:
            watchers.discard(watcher)
            if not watchers:
                self._watchers.pop(digest, None)

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
        self._end(_digest(token))

    def revoke_agent(self, agent_id: str) -> None:
        """End an agent's token and those of its runs."""
        self._agents.pop(agent_id, None)
        gone = [d for d, identity in self._known.items() if identity.agent_id == agent_id]
        for digest in gone:
            self._end(digest)

    def _end(self, digest: bytes) -> None:
        self._known.pop(digest, None)
        for watcher in tuple(self._watchers.get(digest, ())):
            watcher()


def operator_token(path: Path, entropy: Entropy) -> tuple[str, bool]:
    """The operator's token from ``path``, made at the first start (mode 0600); and whether it is new
    because others could read the old one.

    Raises ``ConfigError`` where the file is unreadable or empty.
    """
    try:
        if is_loose(path):
            return renewed_token(path, entropy), True
        token = path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return renewed_token(path, entropy), False
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
    return token, False


def is_loose(path: Path) -> bool:
    """Whether somebody else could read or change the token, or its owner can't read it; blocks.

    A mode that its owner can't read was set by somebody, who may have set others before. Raises
    ``FileNotFoundError``.
    """
    mode = stat.S_IMODE(path.stat().st_mode)
    return bool(mode & 0o077) or not mode & 0o400


def renewed_token(path: Path, entropy: Entropy) -> str:
    """A new token in ``path`` (mode 0600), in place of whatever is there; blocks."""
    token = entropy.token()
    write_atomic(path, (token + "\n").encode(), mode=0o600)
    return token
