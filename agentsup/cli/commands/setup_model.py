"""The step of ``agentsup setup`` that chooses what the agents think with."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, replace
from typing import Final

from agentsup.cli.commands.home_files import change_file
from agentsup.cli.commands.model_choice import (
    ModelChoice,
    ProviderUnavailable,
    answer_text,
    ask_model,
    check_known,
    checked_key,
    models_of,
    read_key,
    store_secret,
    write_fields,
)
from agentsup.cli.commands.models import show_change
from agentsup.cli.commands.setup_questions import Questions, SetupEnded
from agentsup.cli.connect.failure import CommandFailed
from agentsup.config import Home, environment_of, listed, with_fields
from agentsup.engines.programs import PROGRAMS, sign_in_of
from agentsup.engines.providers import PROVIDERS, Provider
from agentsup.kit.searching import not_found
from agentsup.kit.sentences import as_sentence

NOTHING: Final = "none"
_TRIES: Final = 3


@dataclass(frozen=True, slots=True)
class ModelAnswers:
    """The options about the model; None and empty: ask."""

    provider: str | None = None
    base_url: str | None = None
    key_file: str | None = None
    model: str | None = None
    test: bool | None = None


def choose_model(home: Home, given: ModelAnswers, questions: Questions) -> None:
    """Choose provider, key and model, try it, and write it for all agents."""
    name = given.provider or questions.choice(
        "Which provider should your agents use?", _offered(home), "--provider"
    )
    if name == NOTHING:
        questions.say(
            "The agents go on answering by rules. `agentsup setup` chooses a model later."
        )
        return
    if program := _program_of(name):
        _use_program(home, program, questions)
        return
    provider = PROVIDERS.get(name)
    if provider is None:
        raise CommandFailed(
            f"there is no provider {name!r}, only {', '.join((*PROVIDERS, *map(_offered_as, PROGRAMS)))}",
            exit_code=2,
        )
    _check_installed(provider)
    address = given.base_url or provider.base_url
    if not given.base_url and questions.can_ask and not provider.needs_key:
        address = questions.text("Address of the server", "--base-url", provider.base_url)
    if not address:
        raise CommandFailed("--base-url is missing", exit_code=2)
    choice, known = _signed_in(home, ModelChoice(provider, address.rstrip("/")), given, questions)
    choice = _tried(choice, known, given, questions)
    if choice.key and not choice.key_reference.startswith("env:"):
        choice = replace(choice, key_reference=store_secret(home, f"{name}.key", choice.key))
        questions.say(f"The key is in {home.secrets / f'{name}.key'}, which only you can read.")
    show_change(questions.screen, home, None, write_fields(home, None, choice.fields))


def _offered(home: Home) -> list[tuple[str, str]]:
    environ = environment_of(home)
    programs = []
    for name, preset in PROGRAMS.items():
        if shutil.which(preset.program, path=environ.get("PATH", "")):
            by = sign_in_of(preset, environ, os.path.isfile)
            programs.append((_offered_as(name), f"{preset.title} (installed, {by})"))
    own = [(each.name, each.title) for each in PROVIDERS.values()]
    return [*own, *programs, (NOTHING, "nothing for now: they answer by rules")]


def _offered_as(program: str) -> str:
    """The name under which a coding agent is chosen: a provider may have the same one."""
    return f"{program}-cli" if program in PROVIDERS else program


def _program_of(name: str) -> str:
    """The coding agent that ``name`` chooses; empty for a provider."""
    return next((each for each in PROGRAMS if _offered_as(each) == name), "")


def _check_installed(provider: Provider) -> None:
    from importlib.util import find_spec

    extra = "anthropic" if provider.dialect == "anthropic" else "llm"
    if find_spec("pydantic_ai") is None or (
        extra == "anthropic" and find_spec("anthropic") is None
    ):
        raise CommandFailed(
            f"{provider.title} needs an optional part: pip install 'agentsup[{extra}]' (or "
            f"`pipx inject agentsup 'agentsup[{extra}]'`), then run `agentsup setup` again"
        )


def _signed_in(
    home: Home, choice: ModelChoice, given: ModelAnswers, questions: Questions
) -> tuple[ModelChoice, tuple[str, ...]]:
    """The choice with a key that the provider accepts, and its models."""
    provider = choice.provider
    if given.key_file:
        choice = replace(choice, key=read_key(given.key_file))
    elif provider.needs_key and (found := environment_of(home).get(provider.key_name)):
        choice = replace(choice, key=found, key_reference=f"env:{provider.key_name}")
        if os.environ.get(provider.key_name):
            # It would be gone with this shell.
            choice = replace(choice, key_reference="")
            questions.say(f"The key in {provider.key_name} is used, and stored for later.")
    elif provider.needs_key:
        choice = replace(choice, key=_asked_key(provider, questions))
    for left in reversed(range(_TRIES)):
        try:
            return choice, models_of(choice)
        except ProviderUnavailable as failure:
            if given.model and given.test is False:
                questions.say(
                    f"{as_sentence(str(failure))} {given.model} is taken without a look at its models."
                )
                return choice, ()
            raise
        except CommandFailed as failure:
            if not questions.can_ask or not left or given.key_file:
                raise
            questions.say(as_sentence(str(failure)))
            choice = replace(choice, key=_asked_key(provider, questions), key_reference="")
    raise AssertionError("the last try returns or raises")


def _asked_key(provider: Provider, questions: Questions) -> str:
    if provider.keys_at and questions.can_ask:
        questions.say(f"You get a key at {provider.keys_at}.")
    return checked_key(questions.hidden(f"Key for {provider.title}", "--key-file"))


def _tried(
    choice: ModelChoice, known: tuple[str, ...], given: ModelAnswers, questions: Questions
) -> ModelChoice:
    """The choice with a model that the provider has, and that has answered if that was wanted."""
    where, load = choice.client.address, choice.provider.load
    if not known and not given.model:
        hint = f": {load}, then run `agentsup setup` again" if load else "; name one with --model"
        raise CommandFailed(f"{where} has no model{hint}")
    only = known[0] if len(known) == 1 else ""
    if known:
        questions.say(f"{where} has {f'one model, {only}' if only else f'{len(known)} models'}.")
    while True:
        model = given.model or only or questions.model(known, "--model")
        choice = replace(choice, model=model)
        check_known(choice, known)
        test = given.test
        if test is None:
            test = not questions.can_ask or questions.agrees(
                f"Try {model} with one short request?", "--test"
            )
        if not test:
            return choice
        try:
            questions.say(answer_text(ask_model(choice)) + ".")
            return choice
        except SetupEnded:
            raise
        except CommandFailed as failure:
            if given.model or only or not questions.can_ask:
                raise
            questions.say(as_sentence(str(failure)))
            if questions.agrees("Use it all the same?", "--no-test", default=False):
                return choice


def _use_program(home: Home, name: str, questions: Questions) -> None:
    preset = PROGRAMS[name]
    environ = environment_of(home)
    if shutil.which(preset.program, path=environ.get("PATH", "")) is None:
        raise CommandFailed(not_found(preset.program, environ, preset.remedy))
    by = sign_in_of(preset, environ, os.path.isfile)
    if not by:
        seen = by if by.ended else "not signed in, as far as can be seen"
        questions.say(f"{preset.title} is {seen}: {preset.sign_in}.")
    # An entry that names an engine does not follow the default.
    fields = {"engine": name}

    def change(text: str) -> str:
        for each in listed(text).values:
            if each.get("engine", "auto") in ("auto", "llm"):
                text = with_fields(text, str(each["name"]), fields)
        return text

    show_change(questions.screen, home, None, write_fields(home, None, fields))
    if home.agents_json.exists():
        change_file(home, change)
        questions.say(f"The entries of {home.agents_json.name} name it, too.")
