"""Secrets by reference: `env:NAME` and `file:PATH` are read here, at the place of use.

A secret is never kept in a snapshot in clear unless a person wrote it in clear, and never shown.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from agentsup.config.files import timed_reads
from agentsup.config.findings import is_secret_name
from agentsup.kit.planted import read_plain
from agentsup.model.agent import Secret
from agentsup.model.errors import ConfigError

MAX_FILE_BYTES = 64 * 1024
"""A file that holds a secret is small."""

LIMIT_S = 5.0
ON_LOOP_S = 0.25
"""Where a secret is resolved on the event loop: a share that does not answer must not stop it."""

_REFERENCE = re.compile(r"(?P<kind>env|file):(?P<target>.+)", re.DOTALL)


def resolve(secret: Secret, *, base: Path, environ: Mapping[str, str] | None = None) -> Secret:
    """Return the literal secret that `secret` is or refers to.

    A relative `file:` path counts from `base`, the home; `~` is the user's own directory. Blocks
    on the disk for `file:`. Raises `ConfigError` that names the reference, never the value.
    """
    match = _REFERENCE.fullmatch(secret.written)
    if match is None:
        return secret
    environ = os.environ if environ is None else environ
    if match["kind"] == "env":
        value = environ.get(match["target"], "")
        if not value.strip():
            raise ConfigError(
                f"the environment variable {match['target']} is not set",
                hint="set it for the daemon, or write file:PATH",
            )
    else:
        value = _read(match["target"], base)
    value = value.strip()
    if value.startswith(("env:", "file:")):
        raise ConfigError(f"{secret.shown} refers to another reference", hint="write it directly")
    return Secret(value)


def _read(written: str, base: Path) -> str:
    path = base / Path(written).expanduser()
    try:
        read = partial(read_plain, path, MAX_FILE_BYTES + 1)
        data = timed_reads().run(read, _limit_s(), key=f"{path}")
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        raise ConfigError(f"the secret file {path} can't be read: {reason}") from None
    except (RuntimeError, ValueError):
        raise ConfigError(f"the secret file {written!r} has no usable path") from None
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"the secret file {path} is larger than {MAX_FILE_BYTES:,} bytes")
    try:
        text = data.decode("utf-8").strip()
    except UnicodeDecodeError:
        raise ConfigError(f"the secret file {path} is not UTF-8 text") from None
    if not text:
        raise ConfigError(f"the secret file {path} is empty")
    return text


def _limit_s() -> float:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return LIMIT_S
    return ON_LOOP_S


def protect(options: Mapping[str, Any]) -> dict[str, Any]:
    """Wrap texts under secret-sounding keys (`api_key`, `token`, …) in `Secret`, at any depth."""
    return {key: _protected(key, value) for key, value in options.items()}


def _protected(key: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return protect(value)
    if isinstance(value, list | tuple):
        return [_protected(key, each) for each in value]
    return Secret(value) if isinstance(value, str) and is_secret_name(key) else value


def resolve_options(
    options: Mapping[str, Any], *, base: Path, environ: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Engine options as plain JSON values, with secrets and `env:NAME` texts resolved.

    `file:` is resolved under secret-sounding keys only; elsewhere (a script) it stays a path for
    the engine. Raises `ConfigError` as `resolve` does.
    """

    def plain(value: Any) -> Any:
        if isinstance(value, Secret):
            return resolve(value, base=base, environ=environ).reveal()
        if isinstance(value, str) and value.startswith("env:"):
            return resolve(Secret(value), base=base, environ=environ).reveal()
        if isinstance(value, Mapping):
            return {key: plain(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [plain(each) for each in value]
        return value

    return {key: plain(value) for key, value in options.items()}


def redacted(value: Any) -> Any:
    """The same value for eyes: secrets as their reference or `***`, containers as plain ones."""
    if isinstance(value, Secret):
        return value.shown
    if isinstance(value, Mapping):
        return {key: redacted(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(each) for each in value]
    return value


def secret_values(options: Any) -> list[Secret]:
    """Every `Secret` inside a value, for the log's redaction by value."""
    if isinstance(options, Secret):
        return [options]
    if isinstance(options, Mapping):
        return [found for each in options.values() for found in secret_values(each)]
    if isinstance(options, list | tuple):
        return [found for each in options for found in secret_values(each)]
    return []
