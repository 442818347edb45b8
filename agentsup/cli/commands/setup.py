"""``agentsup setup``: from nothing to a real model, a bot and its owner, step by step."""

from __future__ import annotations

from typing import Annotated

import typer

from agentsup.cli.commands.lifecycle import HomeHere
from agentsup.cli.commands.models import BaseUrl, KeyFile
from agentsup.cli.output.options import home_location


def setup(
    ctx: typer.Context,
    home: HomeHere = None,
    provider: Annotated[
        str | None,
        typer.Option(
            help="openai, anthropic, gemini, mistral, openrouter, ollama, lmstudio, vllm, compatible, "
            "a coding agent such as claude or gemini-cli, or none."
        ),
    ] = None,
    base_url: BaseUrl = None,
    key_file: KeyFile = None,
    model: Annotated[str | None, typer.Option(help="One of the provider's models.")] = None,
    test: Annotated[
        bool | None, typer.Option("--test/--no-test", help="Try the model with one request.")
    ] = None,
    bot_token_file: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="A file with the token of main's Telegram bot."),
    ] = None,
    person: Annotated[str | None, typer.Option(help="Your name here; you are an operator.")] = None,
    telegram_id: Annotated[
        int | None, typer.Option(min=1, help="Your numeric Telegram id.")
    ] = None,
    service: Annotated[
        bool | None, typer.Option("--service/--no-service", help="Start it with this machine.")
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Ask nothing; leave what no option names.")
    ] = False,
) -> None:
    """Choose a model, connect a bot, say who you are; run again, it changes one thing.

    Every question has an option. Secrets come from files or from the keyboard, never from options.
    """
    del home
    from agentsup.cli.commands.setup_model import ModelAnswers
    from agentsup.cli.commands.setup_steps import BotAnswers, SetupAnswers, run_setup

    location = home_location(ctx, "`setup` is for a home")
    answers = SetupAnswers(
        ModelAnswers(provider, base_url, key_file, model, test),
        BotAnswers(bot_token_file, person, telegram_id),
        service,
    )
    run_setup(location, answers, is_quiet=yes)
