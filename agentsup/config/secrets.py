"""Secrets by reference: ``env:NAME`` and ``file:PATH`` are resolved here, at use.

A snapshot holds a secret in clear only if a person wrote it in clear, and a secret is never shown.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from agentsup.config.files import timed_reads
from agentsup.config.findings import is_secret_name
from agentsup.kit.own_command import with_home
from agentsup.kit.safe_files import read_plain
from agentsup.model.errors import ConfigError
from agentsup.model.secret import Secret

MAX_FILE_BYTES = 64 * 1024
"""The most bytes of a file with a secret."""

LIMIT_S = 5.0
ON_LOOP_S = 0.25
"""The time limit in seconds on the event loop: a share that does not answer must not stop it."""

_REFERENCE = re.compile(r"(?P<kind>env|file):(?P<target>.+)", re.DOTALL)


def resolve(secret: Secret, *, base: Path, environ: Mapping[str, str] | None = None) -> Secret:
    """The literal secret that ``secret`` is or refers to.

    A relative ``file:`` path counts from ``base``, the home; ``~`` is the user's own directory.
    Blocks on the disk for ``file:``. Raises ``ConfigError`` that names the reference, never the
    value.
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
                hint="put it into the file environment of the home and restart, or write file:PATH",
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
        raise ConfigError(
            f"the secret file {path} can't be read: {reason}",
            hint=with_home("put it back, or store the secret anew with `agentsup setup`"),
        ) from None
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


def protect(value: Any, key: str = "") -> Any:
    """Wrap texts under secret-sounding keys (``api_key``, ``token``, …) in ``Secret``, at any
    depth."""
    if isinstance(value, Mapping):
        return {inner: protect(each, inner) for inner, each in value.items()}
    if isinstance(value, list | tuple):
        return [protect(each, key) for each in value]
    return Secret(value) if isinstance(value, str) and is_secret_name(key) else value


def resolve_options(
    options: Mapping[str, Any], *, base: Path, environ: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Engine options as plain JSON values, with secrets and ``env:NAME`` texts resolved.

    ``file:`` is resolved only under secret-sounding keys; elsewhere (a script) it stays a path for
    the engine. Raises ``ConfigError`` as ``resolve`` does.
    """

    def plain(value: Any) -> Any:
        if isinstance(value, str) and value.startswith("env:"):
            value = Secret(value)
        if not isinstance(value, Secret):
            return value
        return resolve(value, base=base, environ=environ).reveal()

    return {key: _with_each(value, plain) for key, value in options.items()}


def redacted(value: Any) -> Any:
    """The value for display: secrets as their reference or ``***``, containers as plain ones."""
    return _with_each(value, lambda each: each.shown if isinstance(each, Secret) else each)


def _with_each(value: Any, change: Callable[[Any], Any]) -> Any:
    """A JSON value with ``change`` applied to all that is in it and is no container."""
    if isinstance(value, Mapping):
        return {key: _with_each(each, change) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_with_each(each, change) for each in value]
    return change(value)


def secret_values(options: Any) -> list[Secret]:
    """Every ``Secret`` inside a value, for redaction by value in the log."""
    if isinstance(options, Secret):
        return [options]
    if isinstance(options, Mapping):
        return [found for each in options.values() for found in secret_values(each)]
    if isinstance(options, list | tuple):
        return [found for each in options for found in secret_values(each)]
    return []
