"""Accounts on Telegram and Matrix in the forms that OpenClaw and nanobot share."""

from __future__ import annotations

from typing import Any

from agentsup.cli.moving.model_names import Keyring
from agentsup.cli.moving.values import mapping, matrix_users, telegram_ids, text_of
from agentsup.cli.moving.workspaces import Gathered

_PAIRED = "pairing is done again here: agentsup pair, or write the ids into allowed_user_ids"


def telegram_account(
    given: object, name: str, keys: Keyring, gathered: Gathered, *, paired: object = None
) -> dict[str, Any]:
    """The fields of an entry for a bot and the people who may talk to it; empty if it is off.

    ``paired`` are people who were let in while it ran.
    """
    bot = mapping(given)
    if not bot or bot.get("enabled") is False:
        return {}
    written = bot.get("botToken") or bot.get("token") or keys.variables.get("TELEGRAM_BOT_TOKEN")
    token = keys.reference(written, f"{name}-telegram.token")
    if not token:
        gathered.remark(
            f"{name}: its Telegram bot", "its token is missing, elsewhere or a placeholder"
        )
        return {}
    users, others = telegram_ids(bot.get("allowFrom") or bot.get("allow_from"))
    more, _ = telegram_ids(paired)
    more += telegram_ids(bot.get("groupAllowFrom"))[0]
    groups, _ = telegram_ids([*mapping(bot.get("groups"))])
    if "*" in others:
        gathered.remark(f"{name}: everybody on Telegram", "who may talk to a bot is listed by id")
    if names := [each for each in others if each != "*"]:
        gathered.remark(
            f"{name}: {', '.join(names[:20])}", "people on Telegram are known by numbers"
        )
    fields: dict[str, Any] = {"telegram_token": token}
    if people := [each for each in dict.fromkeys((*users, *more)) if each > 0]:
        fields["allowed_user_ids"] = people
    else:
        gathered.remark(f"{name}: nobody is let in on Telegram", _PAIRED)
    if groups:
        fields["allowed_group_ids"] = groups
    return fields


def matrix_account(given: object, name: str, keys: Keyring, gathered: Gathered) -> dict[str, Any]:
    """The fields of an entry for a Matrix account; empty if it is off."""
    account = mapping(given)
    if not account or account.get("enabled") is False:
        return {}
    matrix: dict[str, Any] = {
        "homeserver": text_of(account.get("homeserver"), 500),
        "user_id": text_of(account.get("userId") or account.get("user_id"), 300),
        "device_id": text_of(account.get("deviceId"), 200),
    }
    for key, theirs in (("access_token", "accessToken"), ("password", "password")):
        if reference := keys.reference(account.get(theirs), f"{name}-matrix-{key}.secret"):
            matrix[key] = reference
            break
    else:
        gathered.remark(f"{name}: its Matrix account", "its password or access token is missing")
        return {}
    users, others = matrix_users(account.get("allowFrom") or _direct(account))
    if others:
        gathered.remark(
            f"{name}: {', '.join(others[:20])}", "people on Matrix look like @name:server"
        )
    matrix["allowed_users"] = users
    matrix["allowed_rooms"] = [
        room for room in mapping(account.get("groups") or account.get("rooms")) if room[:1] == "!"
    ]
    if account.get("encryption") or account.get("e2eeEnabled"):
        gathered.remark(f"{name}: encrypted Matrix rooms", "rooms without encryption are served")
    return {"matrix": {key: value for key, value in matrix.items() if value}}


def _direct(account: Any) -> object:
    return mapping(account.get("dm")).get("allowFrom")
