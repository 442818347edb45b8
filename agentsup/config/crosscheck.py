"""Checks that need all agents at once: duplicate identities, and what can't work as declared.

A duplicate identity is an error, because two bots with one token take each other's messages. A
problem that only stops one agent's channel is a warning: the agent stays reachable otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from agentsup.config import mcp, secrets
from agentsup.config.findings import ConfigFinding, KeyPath, Severity, did_you_mean
from agentsup.model.agent import AgentSpec
from agentsup.model.errors import ConfigError
from agentsup.model.platforms import PLATFORMS
from agentsup.model.secret import Secret
from agentsup.model.watch import ANYONE, EventSubscription


@dataclass(frozen=True, slots=True)
class Where:
    """The file, line and column of a value."""

    path: str
    line: int | None
    column: int | None
    field: str

    def finding(
        self, message: str, hint: str | None = None, severity: Severity = Severity.WARNING
    ) -> ConfigFinding:
        """A finding about that value."""
        return ConfigFinding(severity, message, self.path, self.line, self.column, self.field, hint)


LocateField = Callable[[str, KeyPath], Where]
"""Returns the location of a field (as a key path) of the agent with that name."""


def cross_check(
    specs: Iterable[AgentSpec],
    locate: LocateField,
    *,
    base: Path,
    environ: Mapping[str, str],
    has_people: Container[str],
) -> tuple[ConfigFinding, ...]:
    """Findings over all specs. Reads ``file:`` secrets to compare them; shows none.

    ``has_people``: the platforms with ids in ``[people]``, whose people may talk to every agent
    there.
    """
    checked = list(specs)
    found = [*_identities(checked, locate, base, environ)]
    names = {spec.name.casefold(): spec.name for spec in checked}
    for spec in checked:
        found += _channels(spec, locate, has_people=has_people)
        found += _servers(spec, locate, base, environ)
        found += _models(spec, locate)
        if text := bypass_problem(spec.engine, spec.permission_mode or "", environ):
            found.append(locate(spec.name, ("permission_mode",)).finding(text))
        for index, watch in enumerate(spec.subscriptions):
            name = EventSubscription.parse(watch).name
            if name != ANYONE and name.casefold() not in names:
                at = locate(spec.name, ("subscriptions", index))
                hint = did_you_mean(name, names.values())
                found.append(at.finding(f"there is no agent called {name!r}", hint))
    return tuple(found)


def bypass_problem(engine: str, permission_mode: str, environ: Mapping[str, str]) -> str:
    """Why each message of an agent would fail; empty if it works.

    As root, Claude Code accepts bypassPermissions only if it is told that it runs in a sandbox.
    """
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


def _models(spec: AgentSpec, locate: LocateField) -> Iterable[ConfigFinding]:
    """Settings of a fallback for which no model, provider or engine is declared."""
    if spec.fallback_model or spec.fallback_provider or spec.fallback_engine:
        return
    for field in ("model_tier", "fallback_options"):
        if (spec.model_tier != "primary") if field == "model_tier" else spec.fallback_options:
            text = "there is no fallback, so this is of no effect"
            yield locate(spec.name, (field,)).finding(text, "set fallback_model")


def _servers(
    spec: AgentSpec, locate: LocateField, base: Path, environ: Mapping[str, str]
) -> Iterable[ConfigFinding]:
    for where, message, hint, is_error in mcp.problems(spec.mcp, base=base, environ=environ):
        severity = Severity.ERROR if is_error else Severity.WARNING
        yield locate(spec.name, where).finding(message, hint, severity)


def _identities(
    specs: Iterable[AgentSpec], locate: LocateField, base: Path, environ: Mapping[str, str]
) -> Iterable[ConfigFinding]:
    owners: dict[tuple[str, str], tuple[str, Where]] = {}
    for spec in specs:
        claims: list[tuple[KeyPath, str, str]] = []
        for given in (each for platform in PLATFORMS for each in platform.secrets):
            where, secret = _path_of(given.field), given.of(spec)
            if secret is None:
                continue
            try:
                value = secrets.resolve(secret, base=base, environ=environ)
            except ConfigError as error:
                yield locate(spec.name, where).finding(error.message, error.hint)
                value = secret
            if given.unique_as:
                claims.append((where, given.unique_as, value.written))
        for platform in PLATFORMS:
            account = attrgetter(platform.account)(spec)
            if platform.account_name and account:
                claims.append(
                    (_path_of(platform.account), platform.account_name, account.casefold())
                )
        for where, kind, identity in claims:
            at = locate(spec.name, where)
            owner, first = owners.setdefault((kind, identity), (spec.name, at))
            if owner != spec.name:
                yield at.finding(
                    f"this {kind} is used by {owner!r} already ({first.path}, line {first.line})",
                    "every agent has its own identity",
                    Severity.ERROR,
                )


def _path_of(field: str) -> KeyPath:
    return tuple(field.split("."))


def _channels(
    spec: AgentSpec, locate: LocateField, *, has_people: Container[str]
) -> Iterable[ConfigFinding]:
    for kind in spec.transports:
        for each in PLATFORMS:
            if kind == each.name and not attrgetter(each.account)(spec):
                at = locate(spec.name, ("transports",))
                yield at.finding(f"the {each.title} channel can't start without {each.account}")
    for each in PLATFORMS:
        for problem in each.lacks(spec):
            yield locate(spec.name, _path_of(each.account)).finding(problem)
    for each in PLATFORMS:
        has_account = attrgetter(each.account)(spec)
        if has_account and not attrgetter(each.people)(spec) and each.name not in has_people:
            at = locate(spec.name, _path_of(each.account))
            hint = (
                f"list your own {each.person} in {each.people}, or write to it and `agentsup pair`"
            )
            yield at.finding(f"nobody may talk to this agent over {each.title}", hint)


def secret_values_of(spec: AgentSpec) -> tuple[Secret, ...]:
    """Every secret of a spec, for redaction by value in the log."""
    own = (secret.of(spec) for platform in PLATFORMS for secret in platform.secrets)
    return (
        *(each for each in own if each is not None),
        *secrets.secret_values(spec.engine_options),
        *secrets.secret_values(spec.fallback_options),
        *mcp.secrets_of(spec.mcp),
    )
