"""The steps of ``agentsup setup``: their order, the first bot, and who its owner is."""

from __future__ import annotations

import asyncio
import getpass
import os
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from agentsup.cli.commands.background import answering
from agentsup.cli.commands.home_files import change_settings, create_home, with_settings
from agentsup.cli.commands.model_choice import read_key, store_secret
from agentsup.cli.commands.setup_model import ModelAnswers, choose_model
from agentsup.cli.commands.setup_questions import Questions
from agentsup.cli.connect.failure import CommandFailed
from agentsup.cli.connect.locate import DaemonLocation
from agentsup.config import Home, load
from agentsup.kit.text import as_sentence
from agentsup.model.agent import MAIN
from agentsup.model.errors import AgentsupError
from agentsup.model.secret import Secret

_TOKEN: Final = re.compile(r"\d{3,20}:[A-Za-z0-9_-]{20,100}")
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_TRIES: Final = 3
_CALL_S: Final = 20.0
_WAIT_S: Final = 120.0
_POLL_S: Final = 20
_STEPS: Final = (
    "1. Open https://t.me/BotFather in Telegram and send /newbot.",
    "2. Send a name for your bot, then a user name that ends with 'bot'.",
    "3. BotFather answers with a token like 123456789:AAE… - copy it.",
)
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
class BotAnswers:
    """The options about the bot and its owner; None: ask."""

    token_file: str | None = None
    person: str | None = None
    telegram_id: int | None = None


@dataclass(frozen=True, slots=True)
class BotAccount:
    """A bot whose token Telegram accepts."""

    token: Secret
    base_url: str
    username: str = "?"

    def call(self, method: str, **fields: Any) -> Any:
        """One call of the Bot API. Raises ``CommandFailed``."""
        return asyncio.run(_call(self.token, self.base_url, method, fields))


async def _call(token: Secret, base_url: str, method: str, fields: dict[str, Any]) -> Any:
    try:
        from agentsup.channels.telegram import SharedHttp, TelegramClient
    except ImportError:
        raise CommandFailed(
            "Telegram needs an optional part: pip install 'agentsup[telegram]'"
        ) from None
    http = SharedHttp()
    client = TelegramClient(token, base_url, http=http)
    try:
        return await client.call(method, timeout_s=_CALL_S + _POLL_S, **fields)
    except AgentsupError as error:
        raise CommandFailed(error.message) from None
    finally:
        await client.close()
        await http.close()


def connect_bot(home: Home, given: BotAnswers, questions: Questions) -> None:
    """Check a bot's token, find out who its owner is, and write both."""
    account = _account(home, given, questions)
    questions.say(f"Telegram knows this bot: @{account.username}.")
    number = given.telegram_id or _found_owner(account, questions)
    person = _person(given, questions)
    reference = store_secret(home, "main-telegram.token", account.token.written)

    def change(text: str) -> str:
        text = with_settings(text, "main", {"telegram_token": reference})
        return with_settings(text, f"people.{person}", {"role": "operator", "telegram": [number]})

    for line in change_settings(home, change):
        questions.say(f"  {line}")
    questions.say(f"Write to https://t.me/{account.username} once the daemon runs.")
    questions.say("`agentsup agents bot NAME` then creates the bot of another agent with one tap.")


def be_operator(home: Home, given: BotAnswers, questions: Questions) -> None:
    """Write a person with the role operator, whose Telegram id is known or comes by pairing."""
    person = _person(given, questions)
    values: dict[str, Any] = {"role": "operator"}
    if given.telegram_id is not None:
        values["telegram"] = [given.telegram_id]
    for line in change_settings(home, lambda text: with_settings(text, f"people.{person}", values)):
        questions.say(f"  {line}")


def _account(home: Home, given: BotAnswers, questions: Questions) -> BotAccount:
    try:
        base_url = load(home).specs[MAIN].telegram_base_url or ""
    except AgentsupError as error:
        raise CommandFailed(str(error)) from None
    if given.token_file is None:
        for line in _STEPS:
            questions.say(line)
    for left in reversed(range(_TRIES)):
        text = _token_text(given, questions)
        try:
            token = _TOKEN.fullmatch(text.strip())
            if token is None:
                raise CommandFailed("this is no bot token; it looks like 123456789:AAE…")
            found = BotAccount(Secret(token[0]), base_url)
            return replace(found, username=str(found.call("getMe").get("username") or "?"))
        except CommandFailed as failure:
            if given.token_file is not None or not left:
                raise
            questions.say(as_sentence(str(failure)))
    raise AssertionError("the last try returns or raises")


def _token_text(given: BotAnswers, questions: Questions) -> str:
    if given.token_file is None:
        return questions.hidden("The bot's token", "--bot-token-file")
    return read_key(given.token_file)


def _found_owner(account: BotAccount, questions: Questions) -> int:
    """The number of the person who writes to the bot now, else what they type."""
    wants = questions.agrees(
        f"Shall I wait while you write something to https://t.me/{account.username}?",
        "--telegram-id",
    )
    waited_s = 0.0
    while wants and waited_s < _WAIT_S:
        # Not confirmed: the daemon gets these updates again, and answers them.
        updates = account.call("getUpdates", timeout=_POLL_S, allowed_updates=["message"])
        waited_s += _POLL_S
        for update in updates:
            sender = update.get("message", {}).get("from", {})
            if sender.get("is_bot") or not isinstance(sender.get("id"), int):
                continue
            name = " ".join(str(sender.get(k, "")) for k in ("first_name", "last_name")).strip()
            if questions.agrees(f"{name} (id {sender['id']}) wrote. Is that you?", "--telegram-id"):
                return int(sender["id"])
    text = questions.text("Your numeric Telegram id (@userinfobot tells it)", "--telegram-id")
    if not text.isdecimal():
        raise CommandFailed("this is no Telegram id; it is a number such as 123456789")
    return int(text)


def _person(given: BotAnswers, questions: Questions) -> str:
    """The name under ``[people]`` that an option gives, or the person at the terminal."""
    name = given.person or questions.text("Your name here", "--person", _own_name())
    folded = name.strip().casefold()
    if not _NAME.fullmatch(folded):
        raise CommandFailed(
            f"{name!r} can't be a person's name here: small letters, digits, - and _"
        )
    return folded


def _own_name() -> str:
    try:
        found = re.sub(r"[^a-z0-9_-]", "", getpass.getuser().casefold())
    except (OSError, KeyError):
        found = ""
    return found if _NAME.fullmatch(found) and found != "root" else "me"


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
        steps = (_MODEL, _BOT, _SERVICE)
        if _has_model(home):
            asked = "What do you want to change?"
            steps = (questions.choice(asked, [*_STEP_NAMES.items()], "--provider"),)
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
