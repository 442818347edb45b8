"""The models of OpenClaw's agents, and the keys by which they sign in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from agentsup.cli.moving.model_names import Keyring, model_fields
from agentsup.cli.moving.source import SourceFolder
from agentsup.cli.moving.values import look, mapping, parsed, text_of, texts
from agentsup.cli.moving.workspaces import Gathered

STATE: Final = "state/openclaw.sqlite"
"""The database that all agents there share."""


def model_of(
    source: SourceFolder,
    config: Mapping[str, Any],
    there: str,
    entry: Mapping[str, Any],
    name: str,
    keys: Keyring,
    gathered: Gathered,
) -> dict[str, Any]:
    chosen = (
        entry.get("model")
        or look(config, "agents", "defaults", "model")
        or look(config, "agent", "model")
    )
    model = text_of(chosen if isinstance(chosen, str) else look(chosen, "primary"), 200)
    named = model.partition("/")[0]
    provider = mapping(look(config, "models", "providers", named))
    key = provider.get("apiKey") or _profile_key(source, there, named)
    fields = model_fields(model, "", keys, key=key, base_url=provider.get("baseUrl"))
    if model and not fields:
        gathered.remark(
            f"{name}: the model {model}", f"{named} is not known here; agentsup setup chooses one"
        )
    for each in texts(look(chosen, "fallbacks"))[:1]:
        spare = model_fields(
            each, "", keys, key=_profile_key(source, there, each.partition("/")[0])
        )
        if spare and fields:
            fields |= {
                f"fallback_{ours}": spare[theirs]
                for ours, theirs in (
                    *(("model", "model"), ("provider", "provider")),
                    *(("engine", "engine"), ("options", "engine_options")),
                )
            }
    return fields


def _profile_key(source: SourceFolder, there: str, provider: str) -> object:
    """The key of a provider among the profiles by which an agent signs in."""
    agent = f"agents/{there}/agent"
    stores = [look(source.json(f"{agent}/auth-profiles.json"), "profiles")]
    for path, table in (
        (f"{agent}/openclaw-agent.sqlite", "auth_profile_store"),
        (STATE, "auth_profile_stores"),
    ):
        if source.has(path):
            rows = source.rows(path, f"SELECT store_json FROM {table}", 20)  # noqa: S608 - one of two names
            stores += [look(parsed(row["store_json"]), "profiles") for row in rows]
    for store in stores:
        for profile in mapping(store).values():
            if look(profile, "provider") == provider and look(profile, "type") in ("api_key", None):
                return look(profile, "key") or look(profile, "keyRef")
    return None
