"""The order of ``agentsup setup``: which steps are wanted, and what comes after them."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agentsup.cli.commands.background import answering
from agentsup.cli.commands.home_files import create_home
from agentsup.cli.commands.setup_bot import BotAnswers, be_operator, connect_bot
from agentsup.cli.commands.setup_model import ModelAnswers, choose_model
from agentsup.cli.commands.setup_questions import Questions
from agentsup.cli.connect.failure import CommandFailed
from agentsup.cli.connect.locate import DaemonLocation
from agentsup.config import Home, load
from agentsup.model.agent import MAIN
from agentsup.model.errors import AgentsupError

_MODEL: Final = "model"
_BOT: Final = "bot"
_PERSON: Final = "you"
_SERVICE: Final = "service"
_NOTHING: Final = "nothing"
_OTHERS: Final = (".sygen", ".openclaw", ".hermes", ".nanobot")
_STEP_NAMES: Final = {
    _MODEL: "the model, or its key",
    _BOT: "the Telegram bot of main",
    _PERSON: "who you are",
    _SERVICE: "whether it starts with this machine",
    _NOTHING: "nothing more",
}


@dataclass(frozen=True, slots=True)
class SetupAnswers:
    """The options of the command."""

    model: ModelAnswers
    bot: BotAnswers
    service: bool | None = None

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps that options name."""
        named = {
            _MODEL: self.model != ModelAnswers(),
            _BOT: self.bot.token_file is not None,
            _PERSON: self.bot.token_file is None and self.bot != BotAnswers(),
            _SERVICE: self.service is not None,
        }
        return tuple(step for step, is_named in named.items() if is_named)


def run_setup(location: DaemonLocation, answers: SetupAnswers, *, is_quiet: bool) -> None:
    """Make the home if there is none, and take the steps. Raises ``CommandFailed``."""
    questions = Questions.here(is_quiet=is_quiet)
    home = location.home
    if not answers.steps and not questions.can_ask and not is_quiet:
        raise CommandFailed(
            "setup asks at a terminal, and there is none; name what you want, such as --provider, "
            "--bot-token-file, --person or --service, or give --yes",
            exit_code=2,
        )
    is_new = not any(path.exists() for path in home.watched)
    if is_new:
        create_home(home)
        questions.say(f"made the home {home.root}")
        for folder in other_homes(Path.home()):
            questions.say(
                f"There is {folder}: `agentsup import {folder}` tells what can move here."
            )
    steps = answers.steps
    if not steps and questions.can_ask:
        steps = _change(questions) if _has_model(home) else (_MODEL, _BOT, _SERVICE)
        if len(steps) > 1:
            questions.say("Ctrl-C ends at any time, and `agentsup setup` goes on later.")
    is_asked = not answers.steps and len(steps) > 1
    if _MODEL in steps:
        choose_model(home, answers.model, questions)
    if _BOT in steps and (
        not is_asked
        or questions.agrees("Connect a Telegram bot, to talk from your phone?", "--bot-token-file")
    ):
        connect_bot(home, answers.bot, questions)
    if _PERSON in steps:
        be_operator(home, answers.bot, questions)
    _tell_next(location, questions)
    if _SERVICE in steps:
        wanted = answers.service
        if wanted is None:
            wanted = questions.agrees("Start the daemon with this machine?", "--service")
        if wanted:
            _install_service(location)


def other_homes(user: Path) -> list[str]:
    """The homes of products that agents can move here from, as somebody would write them."""
    return [f"~/{name}" for name in _OTHERS if (user / name).is_dir()]


def _change(questions: Questions) -> tuple[str, ...]:
    return (questions.choice("What do you want to change?", [*_STEP_NAMES.items()], "--provider"),)


def _install_service(location: DaemonLocation) -> None:
    """Go on as ``agentsup service install``; does not return."""
    sys.stdout.flush()
    words = ["-m", "agentsup", "--home", str(location.home.root), "service", "install"]
    os.execv(sys.executable, [sys.executable, *words])  # noqa: S606 - ourselves


def _has_model(home: Home) -> bool:
    try:
        spec = load(home).specs[MAIN]
    except AgentsupError as error:
        raise CommandFailed(f"mend the files first: {error}") from None
    return bool(spec.model) or spec.engine not in ("auto", "scripted")


def _tell_next(location: DaemonLocation, questions: Questions) -> None:
    if answering(location) is not None:
        questions.say("The daemon runs and takes this over at once.")
    else:
        questions.say(f"Next: `{location.command('up')}` starts the daemon and opens a chat.")
