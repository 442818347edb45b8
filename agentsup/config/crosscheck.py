"""Checks that need all agents at once: identities used twice, and what can't work as declared.

An identity used twice is an error, because two bots on one token steal each other's messages.
What keeps one agent's channel from starting is a warning: the agent stays reachable otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from agentsup.config import mcp, secrets
from agentsup.config.findings import Finding, KeyPath, Severity, did_you_mean
from agentsup.model.agent import AgentSpec, Secret
from agentsup.model.errors import ConfigError
from agentsup.model.watch import ANYONE, Watch


@dataclass(frozen=True, slots=True)
class Where:
    """The file, line and column of a value."""

    path: str
    line: int | None
    column: int | None
    field: str


Placed = Callable[[str, KeyPath], Where]
"""Place of a field (as a key path) of the agent with a name."""


def cross_check(
    specs: Iterable[AgentSpec],
    place: Placed,
    *,
    base: Path,
    environ: Mapping[str, str],
    has_people: Container[str],
) -> tuple[Finding, ...]:
    """Findings over all specs. Reads `file:` secrets to compare them; shows none.

    `has_people`: platforms on which `[people]` names
    somebody, who may talk to every agent there.
    """
    checked = list(specs)
    found = [*_identities(checked, place, base, environ)]
    names = {spec.name.casefold(): spec.name for spec in checked}
    for spec in checked:
        found += _channels(spec, place, has_people=has_people)
        found += _servers(spec, place, base, environ)
        found += _models(spec, place)
        if text := bypass_problem(spec.engine, spec.permission_mode or "", environ):
            found.append(_warning(place(spec.name, ("permission_mode",)), text))
        for index, watch in enumerate(spec.subscriptions):
            name = Watch.parse(watch).name
            if name != ANYONE and name.casefold() not in names:
                at = place(spec.name, ("subscriptions", index))
                hint = did_you_mean(name, names.values())
                found.append(_warning(at, f"there is no agent called {name!r}", hint))
    return tuple(found)


def bypass_problem(engine: str, permission_mode: str, environ: Mapping[str, str]) -> str:
    """Why each message of an agent would fail: Claude Code asks nobody as root only where it is
    told that it is in a sandbox. Empty where it works."""
    is_refused = (
        engine == "claude"
        and permission_mode == "bypassPermissions"
        and os.geteuid() == 0
        and not environ.get("IS_SANDBOX")
    )
    if not is_refused:
        return ""
    return (
        "claude does not start with bypassPermissions as root, so each message fails; run the daemon "
        "as an ordinary user, or choose another permission_mode"
    )


def _models(spec: AgentSpec, place: Placed) -> Iterable[Finding]:
    """A fallback that is spoken of, and what it is is not said."""
    if spec.fallback_model or spec.fallback_provider or spec.fallback_engine:
        return
    for field in ("model_tier", "fallback_options"):
        if (spec.model_tier != "primary") if field == "model_tier" else spec.fallback_options:
            text = "there is no fallback, so this is of no effect"
            yield _warning(place(spec.name, (field,)), text, "set fallback_model")


def _servers(
    spec: AgentSpec, place: Placed, base: Path, environ: Mapping[str, str]
) -> Iterable[Finding]:
    for where, message, hint, is_error in mcp.problems(spec.mcp, base=base, environ=environ):
        at = place(spec.name, where)
        severity = Severity.ERROR if is_error else Severity.WARNING
        yield Finding(severity, message, at.path, at.line, at.column, at.field, hint)


def _warning(at: Where, message: str, hint: str | None = None) -> Finding:
    return Finding(Severity.WARNING, message, at.path, at.line, at.column, at.field, hint)


def _identities(
    specs: Iterable[AgentSpec], place: Placed, base: Path, environ: Mapping[str, str]
) -> Iterable[Finding]:
    owners: dict[tuple[str, str], tuple[str, Where]] = {}
    for spec in specs:
        claims: list[tuple[KeyPath, str, str]] = []
        held: tuple[tuple[KeyPath, str, Secret | None], ...] = (
            (("telegram_token",), "Telegram token", spec.telegram_token),
            (("matrix", "access_token"), "Matrix access token", spec.matrix.access_token),
            (("matrix", "password"), "", spec.matrix.password),  # may be shared; only resolved
        )
        for where, kind, secret in held:
            if secret is None:
                continue
            try:
                value = secrets.resolve(secret, base=base, environ=environ)
            except ConfigError as error:
                at = place(spec.name, where)
                yield _warning(at, error.message, error.hint)
                value = secret
            if kind:
                claims.append((where, kind, value.written))
        if spec.matrix.user_id:
            claims.append((("matrix", "user_id"), "Matrix user", spec.matrix.user_id.casefold()))
        for where, kind, identity in claims:
            at = place(spec.name, where)
            owner, first = owners.setdefault((kind, identity), (spec.name, at))
            if owner != spec.name:
                yield Finding(
                    Severity.ERROR,
                    f"this {kind} is used by {owner!r} already ({first.path}, line {first.line})",
                    at.path,
                    at.line,
                    at.column,
                    at.field,
                    "every agent has its own identity",
                )


def _channels(spec: AgentSpec, place: Placed, *, has_people: Container[str]) -> Iterable[Finding]:
    for kind in spec.transports:
        if kind == "telegram" and spec.telegram_token is None:
            at = place(spec.name, ("transports",))
            yield _warning(at, "the Telegram channel can't start without telegram_token")
        if kind == "matrix" and not spec.matrix.user_id:
            at = place(spec.name, ("transports",))
            yield _warning(at, "the Matrix channel can't start without matrix.user_id")
    matrix = spec.matrix
    if matrix.user_id and not matrix.homeserver:
        yield _warning(place(spec.name, ("matrix", "user_id")), "matrix.homeserver is missing")
    if matrix.user_id and matrix.password is None and matrix.access_token is None:
        at = place(spec.name, ("matrix", "user_id"))
        yield _warning(at, "the Matrix account has neither password nor access_token")
    if (
        spec.telegram_token is not None
        and not spec.allowed_user_ids
        and "telegram" not in has_people
    ):
        at = place(spec.name, ("telegram_token",))
        hint = "list your own Telegram user id in allowed_user_ids"
        yield _warning(at, "nobody may talk to this agent over Telegram", hint)
    if matrix.user_id and not matrix.allowed_users and "matrix" not in has_people:
        at = place(spec.name, ("matrix", "user_id"))
        hint = "list your own Matrix user id, @name:server, in matrix.allowed_users"
        yield _warning(at, "nobody may talk to this agent over Matrix", hint)


def secret_values_of(spec: AgentSpec) -> tuple[Secret, ...]:
    """Every secret of a spec, for redaction by value in the log."""
    matrix = spec.matrix
    own = (spec.telegram_token, matrix.password, matrix.access_token)
    return (
        *(each for each in own if each is not None),
        *secrets.secret_values(spec.engine_options),
        *secrets.secret_values(spec.fallback_options),
        *mcp.secrets_of(spec.mcp),
    )
