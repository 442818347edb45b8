"""Advice of ``agents validate`` beyond the checks of an edit: nothing of it stops a daemon."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from agentsup.config import secrets
from agentsup.config.crosscheck import LocateField
from agentsup.config.findings import ConfigFinding, KeyPath
from agentsup.model.agent import AgentSpec
from agentsup.model.errors import ConfigError
from agentsup.model.platforms import PLATFORMS, TELEGRAM
from agentsup.model.secret import Secret

_TOKEN = re.compile(r"\d{3,20}:[A-Za-z0-9_-]{20,100}")
"""A token of BotFather."""
_REFERENCE = ("env:", "file:")


def advice(
    spec: AgentSpec, locate: LocateField, home: Path, *, environ: Mapping[str, str]
) -> Iterator[ConfigFinding]:
    """Warnings about secrets in clear and tokens of a wrong shape; with ``environ`` a
    ``config.snapshot.Check``. Reads ``file:`` secrets; shows none."""
    for where, secret in _secrets_of(spec):
        is_own_server = where == (TELEGRAM.account,) and spec.telegram_base_url
        if secret.written and not (secret.written.startswith(_REFERENCE) or is_own_server):
            yield locate(spec.name, where).finding(
                "this secret is written out in the file",
                f'put it into a file that only you can read, and write "file:secrets/{spec.name}.{where[-1]}"',
            )
    if spec.telegram_token is not None and not spec.telegram_base_url:
        yield from _token(spec, spec.telegram_token, locate, home, environ)


def _secrets_of(spec: AgentSpec) -> Iterator[tuple[KeyPath, Secret]]:
    for each in (secret for platform in PLATFORMS for secret in platform.secrets):
        if (found := each.of(spec)) is not None:
            yield tuple(each.field.split(".")), found
    for field in ("engine_options", "fallback_options"):
        for key, value in getattr(spec, field).items():
            if isinstance(value, Secret):
                yield (field, key), value


def _token(
    spec: AgentSpec, given: Secret, locate: LocateField, base: Path, environ: Mapping[str, str]
) -> Iterator[ConfigFinding]:
    try:
        value = secrets.resolve(given, base=base, environ=environ).written
    except ConfigError:
        return  # reported with the agent's identity
    if not _TOKEN.fullmatch(value):
        yield locate(spec.name, (TELEGRAM.account,)).finding(
            "this is no token as BotFather gives them",
            "it is a number, a colon and 35 characters: send /mybots to @BotFather and copy it again",
        )
