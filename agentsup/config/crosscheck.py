"""Checks of specs: duplicate identities, what can't work as declared, and names that do not exist.

A duplicate identity is an error, because two bots with one token take each other's messages. A
problem that only stops one agent's channel is a warning: the agent stays reachable otherwise.
A missing role takes an agent's tools away, a misspelt tool is silently missing, and a misspelt option
fails each turn. They are noticed only when they do harm, so they are errors of the file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from operator import attrgetter
from pathlib import Path

from agentsup.config import mcp, secrets
from agentsup.config.findings import ConfigFinding, KeyPath, Severity, did_you_mean
from agentsup.model.agent import ANYONE, AgentSpec, EventSubscription
from agentsup.model.errors import ConfigError
from agentsup.model.platforms import PLATFORMS, TELEGRAM
from agentsup.model.secret import Secret
from agentsup.model.tool_names import ALL, OF_PROGRAMS, OURS, options_of

NO_PROGRAMS = frozenset({"llm", "scripted", "command"})
"""Engines without tools of their own."""
SCRIPTED = "scripted"
"""The engine that ignores options which it does not know."""
_MCP = "mcp:"
_TOKEN = re.compile(r"\d{3,20}:[A-Za-z0-9_-]{20,100}")
"""A token of BotFather."""
_REFERENCE = ("env:", "file:")


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
            hint = f"list your own {each.people_hint} in {each.people}, or write to it and `agentsup pair`"
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


# -- advice: nothing of it stops a daemon -------------------------------------------------------------


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
            yield _path_of(each.field), found
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


# -- names: a role, an agent, a tool or an engine's option that does not exist ----------------------


def unknown_names(
    specs: Iterable[AgentSpec], locate: LocateField, roles: Iterable[str]
) -> Iterator[ConfigFinding]:
    """A finding for each unknown name in ``role``, ``tools``, ``can_delegate_to`` and the options.

    ``roles`` are the names of all existing roles. A name that may belong to a tool server, or to a
    program's own tools, gives a warning: neither is known before it runs.
    """
    checked, by_role = list(specs), {role.casefold(): role for role in roles}
    names = {spec.name.casefold(): spec.name for spec in checked}
    for spec in checked:
        if spec.role and spec.role.casefold() not in by_role:
            hint = did_you_mean(spec.role, by_role.values())
            hint = hint or f"write roles/{spec.role}/AGENT.md, or leave the role out"
            text = f"there is no role {spec.role!r}, so {spec.name} would have no tools"
            yield locate(spec.name, ("role",)).finding(text, hint, Severity.ERROR)
        yield from _options(spec, locate)
        for index, pattern in enumerate(spec.tools or ()):
            yield from _tool(spec, locate, ("tools", index), pattern)
        for index, name in enumerate(spec.can_delegate_to or ()):
            if name.casefold() not in names | by_role:
                hint = did_you_mean(name, (names | by_role).values())
                text = f"there is neither an agent nor a role called {name!r} ({spec.name})"
                # That agent may have been removed; the name gives nobody more rights.
                yield locate(spec.name, ("can_delegate_to", index)).finding(text, hint)


def as_warnings(
    findings: Iterable[ConfigFinding], known: Iterable[ConfigFinding] | None
) -> Iterator[ConfigFinding]:
    """The findings, with errors that the present edit did not cause turned into warnings.

    ``known`` are the findings for the running set, by the present roles and tools: a role whose
    folder was removed must not refuse an edit of another agent. None at a start, which must not
    fail because of what an earlier version accepted.
    """
    messages: set[str] | None = None
    for finding in findings:
        if not finding.is_error:
            yield finding
            continue
        if known is not None and messages is None:
            messages = {one.message for one in known}  # evaluated only if there is an error
        is_known = messages is None or finding.message in messages
        yield replace(finding, severity=Severity.WARNING) if is_known else finding


def tool_problem(pattern: str) -> tuple[str, str | None] | None:
    """Why a pattern matches no tool of ours and no tool server, with a suggestion; None if it may
    match."""
    if pattern.startswith(_MCP) or _fits(pattern, OURS):
        return None
    return f"there is no tool {pattern!r}", did_you_mean(pattern, sorted(OURS))


def _options(spec: AgentSpec, locate: LocateField) -> Iterator[ConfigFinding]:
    """Options that the engine does not have: it would fail each message."""
    for field, engine, given in (
        ("engine_options", spec.engine, spec.engine_options),
        ("fallback_options", spec.fallback_engine or spec.engine, spec.fallback_options),
    ):
        known = options_of(engine)
        for key in sorted(given.keys() - known):
            at = locate(spec.name, (field, key))
            text = f"the engine {engine} has no option {key!r} ({spec.name})"
            if key in ALL and engine == SCRIPTED:
                continue
            hint = did_you_mean(key, sorted(known)) if key not in ALL else None
            hint = hint or f"it has {', '.join(sorted(known))}"
            yield at.finding(text, hint, Severity.ERROR)


def _tool(
    spec: AgentSpec, locate: LocateField, where: KeyPath, pattern: str
) -> Iterator[ConfigFinding]:
    if pattern.startswith(_MCP):
        server = pattern.removeprefix(_MCP).partition("/")[0]
        if not _fits(server, spec.mcp):
            text = f"{spec.name} has no tool server {server!r} in mcp"
            yield locate(spec.name, where).finding(text, did_you_mean(server, spec.mcp))
        return
    problem = tool_problem(pattern)
    if problem is None:
        return
    text, hint = f"{problem[0]} ({spec.name})", problem[1]
    severity = Severity.ERROR
    if spec.engine not in NO_PROGRAMS and may_be_a_programs(pattern):
        severity = Severity.WARNING
        text = f"{pattern!r} is no tool of ours; it counts for a coding agent's own ({spec.name})"
    yield locate(spec.name, where).finding(text, hint, severity)


def may_be_a_programs(name: str) -> bool:
    """Whether a coding agent may have a tool of this name: a known one, or one in their style."""
    return name.casefold() in OF_PROGRAMS or (name[:1].isupper() and "_" not in name)


def _fits(pattern: str, names: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for name in names)
