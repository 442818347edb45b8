"""Bearer tokens: the operator's (stored in the home), and one per run.

An agent has no token beyond its runs': a program that outlives its turn then has no rights.

Only digests are held, so that a memory dump or a log of this object shows no token. A lookup
compares digests of equal length, so its duration reveals nothing.
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


class TokenRegistry:
    """Implements ``model.control.Tokens`` and ``agents.persona.context.RunTokens``."""

    def __init__(self, entropy: Entropy, operator_token: str) -> None:
        self._entropy = entropy
        self._operator = _digest(operator_token)
        self._known: dict[bytes, TokenIdentity] = {self._operator: TokenIdentity(OPERATOR)}
        self._watchers: dict[bytes, set[Callable[[], None]]] = {}

    def operator_key(self) -> str:
        """A key that changes with the operator's token and does not reveal it."""
        return hashlib.sha256(b"key:" + self._operator).hexdigest()

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
        """A token for one turn of an agent; revoked when the turn ends."""
        token = self._entropy.token()
        principal = Principal(PrincipalKind.RUN, agent_id, agent_name)
        self._known[_digest(token)] = TokenIdentity(principal, agent_id, message_id)
        return token

    def revoke(self, token: str) -> None:
        self._end(_digest(token))

    def revoke_agent(self, agent_id: str) -> None:
        """Revoke the tokens of an agent's runs."""
        gone = [d for d, identity in self._known.items() if identity.agent_id == agent_id]
        for digest in gone:
            self._end(digest)

    def _end(self, digest: bytes) -> None:
        self._known.pop(digest, None)
        for watcher in tuple(self._watchers.get(digest, ())):
            watcher()


def operator_token(path: Path, entropy: Entropy) -> tuple[str, bool]:
    """The operator's token from ``path``, which is created at the first start (mode 0600).

    The second value says whether it was renewed because others could read the old one. Raises
    ``ConfigError`` if the file is unreadable, empty or too short.
    """
    try:
        if _is_loose(path):
            return _renewed_token(path, entropy), True
        token = path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return _renewed_token(path, entropy), False
    except (OSError, UnicodeDecodeError) as error:
        problem = f"the operator's token can't be read: {error}"
    else:
        if len(token) >= 16:
            return token, False
        problem = "the operator's token is empty or too short"
    hint = "delete the file; a new one is made at the next start"
    raise ConfigError(problem, path=str(path), hint=hint)


def _is_loose(path: Path) -> bool:
    """Whether somebody else could read or change the token, or its owner can't read it; blocks.

    A mode without read permission for the owner was set on purpose, maybe after a wider one. Raises
    ``FileNotFoundError``.
    """
    mode = stat.S_IMODE(path.stat().st_mode)
    return bool(mode & 0o077) or not mode & 0o400


def _renewed_token(path: Path, entropy: Entropy) -> str:
    """A new token in ``path`` (mode 0600), which replaces the old file; blocks."""
    token = entropy.token()
    write_atomic(path, (token + "\n").encode(), mode=0o600)
    return token
