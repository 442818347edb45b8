"""A chosen model as values of the files, and its key in a file of its own."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from agentsup.cli.commands.home_files import (
    change_file,
    change_settings,
    difference,
    with_settings,
)
from agentsup.cli.connect.failure import CommandFailed, failing_as
from agentsup.config import (
    Home,
    environment_of,
    listed,
    load,
    resolve_options,
    with_entry,
    with_fields,
)
from agentsup.engines.providers import (
    ModelAnswer,
    Provider,
    ProviderClient,
    has_model,
    tried,
    unknown_model,
)
from agentsup.kit.files import write_atomic
from agentsup.model.agent import MAIN
from agentsup.model.engine import EngineSpec
from agentsup.model.errors import AgentsupError, EngineFailed

_KEY: Final = re.compile(r"[\x21-\x7e]{1,4096}")


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A provider, where it is, and one of its models."""

    provider: Provider
    base_url: str
    model: str = ""
    key: str = field(default="", repr=False)
    key_reference: str = ""
    """The files' reference to the key: ``file:…`` or ``env:…``; empty without one."""

    @property
    def client(self) -> ProviderClient:
        """Asks the provider with the key."""
        return ProviderClient.to(self.provider, self.base_url, self.key, self.key_reference)

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of an entry, or of ``[agent_defaults]``."""
        # Also without a key it is written: another provider's from elsewhere must not be sent there.
        options = {"base_url": self.base_url, "api_key": self.key_reference}
        return {"model": self.model, "provider": self.provider.dialect, "engine_options": options}


def checked_key(text: str) -> str:
    """A key as somebody pasted it, without the space around it. Raises ``CommandFailed``."""
    key = text.strip().strip("\"'")
    if not _KEY.fullmatch(key):
        raise CommandFailed(
            "this is no key: it is empty or has spaces or characters that keys don't have"
        )
    return key


def store_secret(home: Home, name: str, secret: str) -> str:
    """Write a secret into a file of the home that only its owner reads; returns ``file:…``."""
    with failing_as(f"{home.secrets} can't be written"):
        home.secrets.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(home.secrets / name, f"{secret}\n".encode(), mode=0o600)
    return f"file:{home.secrets.name}/{name}"


class ProviderUnavailable(CommandFailed):
    """The provider can't be asked now; it has refused nothing."""


def models_of(choice: ModelChoice) -> tuple[str, ...]:
    """The models of the provider. Raises ``CommandFailed`` that says what to do."""
    try:
        return asyncio.run(choice.client.models())
    except EngineFailed as error:
        kind = CommandFailed if error.permanent else ProviderUnavailable
        raise kind(error.message) from None


def ask_model(choice: ModelChoice) -> ModelAnswer:
    """Make one request. Raises ``CommandFailed`` that says what to do."""
    try:
        return asyncio.run(tried(choice.client, choice.model))
    except EngineFailed as error:
        raise CommandFailed(error.message) from None


def check_known(choice: ModelChoice, known: tuple[str, ...]) -> None:
    """Raise ``CommandFailed``, with names like it, if the provider does not have the model."""
    if known and not has_model(choice.model, known):
        failure = unknown_model(choice.model, known, choice.client.address)
        raise CommandFailed(failure.message)


def answer_text(answer: ModelAnswer) -> str:
    """The result of a test request, as a sentence."""
    tokens = f"{answer.input_tokens} tokens in, {answer.output_tokens} out"
    if answer.usd is None:
        cost = "its price is not known here"
    elif answer.usd == 0:
        cost = "it costs nothing by the token"
    else:
        cost = f"it cost {answer.usd:.6f} US dollars"
    problem = answer.context.problem if answer.context is not None else ""
    text = f"{answer.model} answered in {answer.seconds:.1f} s ({tokens}; {cost})"
    return f"{text}. But {problem}" if problem else text


def write_fields(home: Home, agent: str | None, fields: Mapping[str, Any]) -> list[str]:
    """Set fields of ``agent``, or without one the defaults of all; returns what differs.

    Entries that name other values of the same fields keep them. Raises ``CommandFailed``.
    """
    if agent is None:
        return change_settings(home, lambda text: with_settings(text, "agent_defaults", fields))
    before = _agents_text(home)
    after: list[str] = []

    def change(text: str) -> str:
        names = [name.casefold() for name in listed(text).names]
        if agent.casefold() == MAIN and MAIN not in names:
            after.append(with_entry(text, {"name": MAIN, **fields}))
        else:
            entry = next(e for e in (*listed(text).values, {}) if e.get("name", agent) == agent)
            own = {} if entry.get("engine", "auto") in ("auto", "llm") else {"engine": "llm"}
            after.append(with_fields(text, agent, {**own, **fields}))
        return after[-1]

    change_file(home, change)
    return difference(before, after[-1])


def others_own(home: Home, field_name: str = "model") -> dict[str, str]:
    """The entries of agents.json that name a value of their own, with it."""
    text = _agents_text(home)
    if not text:
        return {}
    return {
        str(each["name"]): str(each[field_name])
        for each in listed(text).values
        if each.get(field_name)
    }


def _agents_text(home: Home) -> str:
    try:
        return home.agents_json.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return ""


def read_key(path: str) -> str:
    """The key in a file, or from standard input for ``-``. Raises ``CommandFailed``."""
    try:
        text = sys.stdin.readline() if path == "-" else Path(path).expanduser().read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(f"the file {path} with the key can't be read: {error}") from None
    return checked_key(text)


def used_by(home: Home, agent: str) -> ModelChoice:
    """The choice of ``agent`` by the files and the environment of this shell and the home.

    Raises ``CommandFailed`` if that is no model that can be asked from here.
    """
    environ = environment_of(home)
    try:
        spec = load(home, environ=environ).require(agent)
        options = resolve_options(spec.engine_options, base=home.root, environ=environ)
        if spec.engine not in ("auto", "llm"):
            raise CommandFailed(
                f"{agent} uses the engine {spec.engine}, which chooses among models of its own; "
                "name a --provider"
            )
        wanted = EngineSpec(
            engine="llm", model=spec.model or "", provider=spec.provider or "", options=options
        )
        client, model = ProviderClient.by_settings(wanted, environ)
    except AgentsupError as error:
        raise CommandFailed(f"{error} (or name a --provider here)") from None
    return ModelChoice(client.provider, client.address, model, client.key, client.key_source)
