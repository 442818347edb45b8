"""``agentsup config …``: the settings of config.toml, one by one."""

from __future__ import annotations

import contextlib
import json
import tomllib
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from agentsup.cli.connect.failure import CommandFailed, failing_as
from agentsup.cli.output.options import AsJson, group, location_of
from agentsup.cli.output.show import Columns, CommandOutput

if TYPE_CHECKING:
    from agentsup.config import Home

config = group("Look at and change the settings of config.toml.")

Key = Annotated[
    str, typer.Argument(metavar="KEY", help="Such as api.port or agent_defaults.model.")
]
EFFECTS: Final = {
    "live": "it applies at once",
    "channel": "it applies at once; the bot connects anew",
    "rebuild": "it applies at once; agents with it are rebuilt when their turns have ended",
    "process": "it applies after a restart (`agentsup restart`)",
}
"""The effect of a change in words, by its ``FieldClass``."""


@config.command()
def get(
    ctx: typer.Context,
    key: Annotated[
        str | None, typer.Argument(metavar="[KEY]", help="One of them; without it, all.")
    ] = None,
    changed: Annotated[
        bool, typer.Option("--changed", help="Only what differs from the default.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Settings with their values, and where each comes from; secrets stay hidden."""
    found = _listed(location_of(ctx).home)
    if key is not None:
        found = [one for one in found if f"{one['key']}.".startswith(f"{key}.")]
        found = found or [{"key": key, "value": None, "from": "not set", "change": _effect(key)}]
    elif changed:
        found = [one for one in found if not one["is_default"]]
    screen = CommandOutput.unless_json({"settings": found}, as_json)
    columns: Columns = (
        *("key", "from", "change"),
        ("value", lambda one: json.dumps(one["value"], ensure_ascii=False)),
    )
    screen.listing(found, columns, empty="Every setting has its default.")


@config.command("set")
def set_(
    ctx: typer.Context,
    key: Key,
    value: Annotated[
        str | None, typer.Argument(metavar="[VALUE]", help="A text, or TOML such as 5 or [1, 2].")
    ] = None,
    clear: Annotated[
        bool, typer.Option("--clear", help="Take it out; the default holds then.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Change a setting in config.toml; comments and order stay, and nothing wrong is written."""
    from agentsup.cli.commands.home_files import change_settings, require_home
    from agentsup.config import without_setting

    if (value is None) != clear:
        raise CommandFailed("give either a VALUE or --clear", exit_code=2)
    kind = _effect(key)
    home = location_of(ctx).home
    require_home(home)
    table, _, name = key.rpartition(".")
    if value is None:
        lines = change_settings(home, lambda text: without_setting(text, table, name))
    else:
        _refuse_secret(name, value)
        lines = _first_that_fits(home, table, name, value)
    effect = EFFECTS[kind] if lines else "it was so already"
    now = next((one for one in _listed(home) if one["key"] == key), None)
    wins = now["from"] if now is not None and now["from"].startswith("environment") else ""
    screen = CommandOutput.unless_json(
        {"key": key, "lines": lines, "effect": effect, "environment": wins}, as_json
    )
    screen.difference(lines)
    screen.prose(f"{key}: {effect}.")
    if wins:
        screen.prose(f"The {wins} is set where this command runs, and wins over the file.")


def _first_that_fits(home: Home, table: str, name: str, value: str) -> list[str]:
    """Write the value as TOML reads it, or else as a text. Raises ``CommandFailed`` if neither is
    right."""
    from agentsup.cli.commands.home_files import change_settings, with_settings

    candidates: list[Any] = [value]
    with contextlib.suppress(ValueError):
        candidates.insert(0, tomllib.loads(f"v = {value}")["v"])
    refusals: list[CommandFailed] = []
    for candidate in candidates:
        try:
            change = partial(with_settings, table=table, values={name: candidate})
            return change_settings(home, change)
        except CommandFailed as refused:
            refusals.append(refused)
    raise refusals[0]


def _refuse_secret(name: str, value: str) -> None:
    from agentsup.config import is_secret_name

    if is_secret_name(name) and not value.startswith(("env:", "file:")):
        raise CommandFailed(
            f"{name} is a secret, which others could read on this command line: put it into a file "
            f'that only you can read, and set "file:PATH" (or "env:NAME")'
        )


def _listed(home: Home) -> list[dict[str, Any]]:
    from agentsup.config import settings_bytes, settings_list

    with failing_as(f"{home.config_toml} can't be read"):
        data = settings_bytes(home)
    return [
        {
            "key": one.key,
            "value": one.value,
            "from": one.origin,
            "change": one.effect.value,
            "is_default": one.is_default,
        }
        for one in settings_list(data)
    ]


def _effect(key: str) -> str:
    """The effect of a change of that setting. Raises ``NotFound`` with the closest key."""
    from agentsup.config import effect_of

    return effect_of(key).value
