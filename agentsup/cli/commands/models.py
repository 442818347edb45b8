"""``agentsup models …``: which models a provider has, whether one answers, and which agents use."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentsup.cli.connect.client import segment
from agentsup.cli.connect.failure import CommandFailed
from agentsup.cli.output.declared import Request, asks, read
from agentsup.cli.output.options import AsJson, client_of, group, location_of
from agentsup.cli.output.show import Columns, CommandOutput
from agentsup.kit.terminal import clean

if TYPE_CHECKING:
    from agentsup.cli.commands.model_choice import ModelChoice
    from agentsup.config import Home

models = group("Which models there are, whether one answers, and which the agents use.")

OfAgent = Annotated[str | None, typer.Option("--agent", metavar="NAME", help="One agent alone.")]
ProviderName = Annotated[
    str | None,
    typer.Option(
        "--provider",
        help="openai, anthropic, gemini, mistral, openrouter, ollama, lmstudio, vllm or compatible.",
    ),
]
BaseUrl = Annotated[str | None, typer.Option("--base-url", help="The address of the server.")]
KeyFile = Annotated[
    str | None,
    typer.Option("--key-file", metavar="PATH", help="A file with the key; - reads standard input."),
]


@models.command("list")
def list_(
    ctx: typer.Context,
    words: Annotated[str | None, typer.Argument(help="Only names with this text.")] = None,
    agent: OfAgent = None,
    provider: ProviderName = None,
    base_url: BaseUrl = None,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """The models that the provider of an agent (main, if none is named) offers."""
    from agentsup.cli.commands.model_choice import models_of

    choice = _chosen(location_of(ctx).home, agent, provider, base_url, key_file)
    wanted = (words or "").casefold()
    known = [each for each in models_of(choice) if wanted in each.casefold()]
    document = {"address": choice.client.address, "model": choice.model, "models": known}
    screen = CommandOutput.unless_json(document, as_json)
    for each in known:
        screen.say(f"{each}  (in use)" if each == choice.model else each)
    if not known:
        raise CommandFailed(f"{choice.client.address} names no such model")


@models.command("test")
def try_(
    ctx: typer.Context,
    model: Annotated[str | None, typer.Argument(help="Which; else that of the agent.")] = None,
    agent: OfAgent = None,
    provider: ProviderName = None,
    base_url: BaseUrl = None,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Ask a model for one word, and say what that cost."""
    from dataclasses import replace

    from agentsup.cli.commands.model_choice import answer_text, ask_model

    choice = _chosen(location_of(ctx).home, agent, provider, base_url, key_file)
    choice = replace(choice, model=model or choice.model)
    if not choice.model:
        raise CommandFailed("no model is named; name one of `agentsup models list`", exit_code=2)
    answer = ask_model(choice)
    CommandOutput().done(asdict(answer), clean(answer_text(answer)), as_json=as_json)


@models.command("set")
def set_(
    ctx: typer.Context,
    model: Annotated[str, typer.Argument(help="Its name, as `models list` shows it.")],
    agent: OfAgent = None,
    provider: ProviderName = None,
    base_url: BaseUrl = None,
    key_file: KeyFile = None,
    check: Annotated[bool, typer.Option(help="Ask the provider whether it has the model.")] = True,
    chat: Annotated[
        str | None,
        typer.Option(
            "--chat",
            metavar="CHAT",
            help="For one chat of the agent alone, such as telegram:12345, or a topic of it, such as "
            "telegram:-100123/7; the model `default` lets it use the agent's again.",
        ),
    ] = None,
) -> None:
    """Set the model of an agent, or of all agents without a model of their own."""
    from dataclasses import replace

    if chat is not None:
        if provider or base_url or key_file or not check:
            raise CommandFailed(
                "--chat takes a model of the agent's own provider: leave --provider, --base-url, "
                "--key-file and --no-check out",
                exit_code=2,
            )
        _set_for_chat(ctx, agent or "main", chat, model)
        return

    from agentsup.cli.commands.model_choice import (
        check_known,
        models_of,
        store_secret,
        write_fields,
    )

    home = location_of(ctx).home
    choice = replace(_chosen(home, agent, provider, base_url, key_file), model=model)
    if check:
        check_known(choice, models_of(choice))
    if key_file:
        name = (
            f"{choice.provider.name}.key"
            if agent is None
            else f"{agent}-{choice.provider.name}.key"
        )
        choice = replace(choice, key_reference=store_secret(home, name, choice.key))
    fields = choice.fields if provider or base_url or key_file else {"model": model}
    show_change(CommandOutput(), home, agent, write_fields(home, agent, fields))


CHATS: Columns = (
    *("chat", "model"),
    ("used", lambda each: f"no: was for {each['not_used']}" if each["not_used"] else "yes"),
    ("chosen by", "chosen_by"),
)


def _chats(screen: CommandOutput, one: dict[str, Any]) -> None:
    empty = f"No chat of {one['agent'] or 'main'} has a model of its own."
    screen.listing(one["chats"], CHATS, empty=empty)


@asks(_chats, models, "chats")
def chats(agent: OfAgent = None) -> Request:
    """The chats and topics of an agent (main, if none is named) with a model of their own."""
    return read(f"/agents/{segment(agent or 'main')}/chat_models")


def _set_for_chat(ctx: typer.Context, agent: str, chat: str, model: str) -> None:
    """Ask the daemon to choose a model for one chat, and say what holds there."""
    body = {"chat": chat, "model": None if model in ("default", "-") else model}
    path = f"/agents/{segment(agent)}/chat_models"
    holds = client_of(ctx).post(path, body, timeout_s=30.0)["holds"]
    if holds is None:
        CommandOutput().prose(clean(f"The own model of {agent} answers in {chat}."))
        return
    CommandOutput().prose(clean(f"{holds['model']} answers in {chat} from the next turn on."))
    if holds["unchecked"]:
        CommandOutput().prose(
            clean(f"Whether its provider has it could not be checked: {holds['unchecked']}")
        )


def show_change(screen: CommandOutput, home: Home, agent: str | None, changed: list[str]) -> None:
    """Print what differs in the file, and which agents keep their own model."""
    from agentsup.cli.commands.model_choice import others_own

    name = home.config_toml.name if agent is None else home.agents_json.name
    screen.say(f"{home.root / name}:" if changed else f"{name} says so already.")
    for line in changed:
        screen.say(f"  {clean(line)}")
    own = others_own(home) if agent is None else {}
    for each, value in own.items():
        screen.prose(
            clean(
                f"{each} has a model of its own, {value}; `agentsup models set MODEL --agent {each}` "
                "changes it."
            )
        )


def _chosen(
    home: Home, agent: str | None, provider: str | None, base_url: str | None, key_file: str | None
) -> ModelChoice:
    """The choice by the options; without a provider or an address, the agent's present one."""
    from agentsup.cli.commands.model_choice import ModelChoice, read_key, used_by
    from agentsup.engines.providers import PROVIDERS

    if provider is None and base_url is None:
        used = used_by(home, agent or "main")
        key = read_key(key_file) if key_file else ""
        return used if not key else ModelChoice(used.provider, used.base_url, used.model, key)
    found = PROVIDERS.get(provider or "compatible")
    if found is None:
        raise CommandFailed(
            f"there is no provider {provider!r}, only {', '.join(PROVIDERS)}", exit_code=2
        )
    address = base_url or found.base_url
    if not address:
        raise CommandFailed(f"the provider {found.name} needs --base-url", exit_code=2)
    values: dict[str, Any] = {}
    if key_file:
        values = {"key": read_key(key_file)}
    elif found.needs_key:
        from agentsup.config import environment_of

        values = {
            "key": environment_of(home).get(found.key_name, ""),
            "key_reference": f"env:{found.key_name}",
        }
        if not values["key"]:
            raise CommandFailed(
                f"{found.title} needs a key: give --key-file, or put {found.key_name}=… into "
                f"{home.environment}"
            )
    return ModelChoice(found, address, **values)
