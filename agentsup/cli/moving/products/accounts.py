"""Reads the settings that other products share: models with keys, accounts on Telegram and Matrix,
and times of scheduled work."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from agentsup.cli.moving.gathered import Gathered
from agentsup.cli.moving.values import mapping, matrix_users, number, telegram_ids, text_of, time_ms
from agentsup.engines.providers import PROVIDERS
from agentsup.model.task import NewSchedule

_SAME: Final[Mapping[str, str]] = {
    **{name: name for name in PROVIDERS if name != "compatible"},
    "google": "gemini",
    "lm_studio": "lmstudio",
    "lm-studio": "lmstudio",
    "mistralai": "mistral",
    "openai-api": "openai",
}
"""Their names of providers, and ours."""
_URL: Final = re.compile(r"https?://[^\s/]+\S*")
_PAIRED = "pairing is done again here: agentsup pair, or write the ids into allowed_user_ids"


def model_fields(
    found: Gathered, model: str, provider: str = "", *, key: object = None, base_url: object = None
) -> dict[str, Any]:
    """The fields of an entry for a model; empty if it can't be reached from here.

    ``provider`` may be empty or ``auto``: then the name of the model begins with it.
    """
    named, _, rest = model.partition("/")
    wanted = provider if provider not in ("", "auto", "custom") else ""
    if not wanted and rest and (_SAME.get(named) or provider in ("", "auto")):
        wanted, model = named, rest
    elif wanted and rest and _SAME.get(named) == _SAME.get(wanted, wanted):
        model = rest
    ours = PROVIDERS.get(_SAME.get(wanted, ""), PROVIDERS["compatible"])
    address = found.value(base_url)
    address = address if _URL.fullmatch(address) else ours.base_url
    if not model or not address:
        return {}
    file = f"{ours.name if ours.name != 'compatible' else _file_name(wanted)}.key"
    reference = found.secret(key, file)
    if not reference and ours.key_name:
        reference = found.secret(found.variables.get(ours.key_name), file)
        reference = reference or f"env:{ours.key_name}"
    return {
        "engine": "llm",
        "model": model[:200],
        "provider": ours.dialect,
        "engine_options": {"base_url": address, "api_key": reference},
    }


def _file_name(text: str) -> str:
    return re.sub(r"[^a-z0-9-]+", "-", text.casefold()).strip("-")[:40] or "compatible"


def telegram_account(
    found: Gathered, given: object, name: str, *, paired: object = None
) -> dict[str, Any]:
    """The fields of an entry for a bot and the people who may talk to it; empty if it is off.

    ``paired`` are people who were let in while it ran.
    """
    bot = mapping(given)
    if not bot or bot.get("enabled") is False:
        return {}
    written = bot.get("botToken") or bot.get("token") or found.variables.get("TELEGRAM_BOT_TOKEN")
    token = found.secret(written, f"{name}-telegram.token")
    if not token:
        found.remark(
            f"{name}: its Telegram bot", "its token is missing, elsewhere or a placeholder"
        )
        return {}
    users, others = telegram_ids(bot.get("allowFrom") or bot.get("allow_from"))
    more, _ = telegram_ids(paired)
    more += telegram_ids(bot.get("groupAllowFrom"))[0]
    groups, _ = telegram_ids([*mapping(bot.get("groups"))])
    if "*" in others:
        found.remark(f"{name}: everybody on Telegram", "who may talk to a bot is listed by id")
    if names := [each for each in others if each != "*"]:
        found.remark(f"{name}: {', '.join(names[:20])}", "people on Telegram are known by numbers")
    fields: dict[str, Any] = {"telegram_token": token}
    if people := [each for each in dict.fromkeys((*users, *more)) if each > 0]:
        fields["allowed_user_ids"] = people
    else:
        found.remark(f"{name}: nobody is let in on Telegram", _PAIRED)
    if groups:
        fields["allowed_group_ids"] = groups
    return fields


def matrix_account(found: Gathered, given: object, name: str) -> dict[str, Any]:
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
        if reference := found.secret(account.get(theirs), f"{name}-matrix-{key}.secret"):
            matrix[key] = reference
            break
    else:
        found.remark(f"{name}: its Matrix account", "its password or access token is missing")
        return {}
    users, others = matrix_users(account.get("allowFrom") or _direct(account))
    if others:
        found.remark(f"{name}: {', '.join(others[:20])}", "people on Matrix look like @name:server")
    matrix["allowed_users"] = users
    matrix["allowed_rooms"] = [
        room for room in mapping(account.get("groups") or account.get("rooms")) if room[:1] == "!"
    ]
    if account.get("encryption") or account.get("e2eeEnabled"):
        found.remark(f"{name}: encrypted Matrix rooms", "rooms without encryption are served")
    return {"matrix": {key: value for key, value in matrix.items() if value}}


def _direct(account: Any) -> object:
    return mapping(account.get("dm")).get("allowFrom")


def job_times(schedule: Mapping[str, Any]) -> NewSchedule | None:
    """The times of ``at``, ``every`` or ``cron``; None if nothing is said."""
    kind, zone = schedule.get("kind"), text_of(schedule.get("tz"), 100)
    if kind == "at":
        return at_time(time_ms(_first(schedule, "atMs", "at_ms", "at")))
    every = number(_first(schedule, "everyMs", "every_ms"))
    if kind == "every" and every:
        return NewSchedule(every_s=every / 1000)
    expr = text_of(schedule.get("expr"), 200)
    if kind != "cron" or not expr:
        return None
    parts = expr.split()
    # A sixth field in front is seconds, which are not kept here.
    return NewSchedule(cron=" ".join(parts[1:] if len(parts) == 6 else parts), zone=zone)


def at_time(at: int) -> NewSchedule | None:
    """One time, given in wall ms; None without one."""
    if at <= 0 or at > 2**43 * 1000:
        return None
    try:
        when = datetime.fromtimestamp(at / 1000, UTC)
    except (OverflowError, OSError, ValueError):
        return None
    return NewSchedule(at=when.isoformat(timespec="seconds"), zone="UTC")


def _first(values: Mapping[str, Any], *keys: str) -> Any:
    return next((values[key] for key in keys if values.get(key) is not None), None)
