"""One bot's calls to the Bot API: raw JSON in and out, typed errors, one HTTP session for all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

__all__ = ["DEFAULT_BASE_URL", "SharedHttp", "TelegramClient", "UploadFile"]

DEFAULT_BASE_URL = "https://api.telegram.org"


class SecretText(Protocol):
    """A resolved secret, such as `agentsup.model.agent.Secret`."""

    @property
    def written(self) -> str: ...


@dataclass(frozen=True, slots=True)
class UploadFile:
    """A file to upload. It is read while it is sent; `path` must be a regular file."""

    path: Path
    name: str


class SharedHttp:
    """One HTTP session and one TLS context for all bots of a daemon, opened at first use."""

    def __init__(self, *, connect_timeout_s: float = 8.0) -> None: ...

    async def close(self) -> None:
        """Close the session; calls under way fail. Harmless when repeated."""


class TelegramClient:
    """Calls of one bot.

    `token` must be resolved (no reference). `base_url` is the server, with or without a trailing
    ``/bot``.
    """

    def __init__(self, token: SecretText, base_url: str, *, http: SharedHttp) -> None: ...

    @property
    def bot_id(self) -> str:
        """The public part of the token."""
        raise NotImplementedError

    async def call(
        self,
        method: str,
        *,
        timeout_s: float = 20.0,
        files: Mapping[str, UploadFile] | None = None,
        **fields: Any,
    ) -> Any:
        """Call ``method`` and return its raw result.

        ``fields`` are JSON values; None is left out. ``timeout_s`` bounds the whole call
        (``getUpdates``: more than its own ``timeout``). Raises a ``TelegramError``.
        """
        raise NotImplementedError

    async def download(self, file_path: str, to: Path, max_bytes: int) -> int:
        """Fetch a file (``file_path`` of ``getFile``) into ``to`` and return its size in bytes.

        ``to`` appears only when it is whole. Raises a ``TelegramError``; ``TooLarge`` over
        ``max_bytes``.
        """
        raise NotImplementedError

    async def close(self) -> None:
        """No more calls; the shared session stays open."""
