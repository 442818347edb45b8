"""The fallback model in the files: read, merged, shown without its key, warned of where it is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentsup.config import ConfigSnapshot, Home, diff_specs, explain_agent, load
from agentsup.config.crosscheck import secret_values_of
from agentsup.model.errors import ConfigErrors

KEY = "sk-of-the-fallback-0123456789"
GIVEN = {
    "name": "ann",
    "fallback_model": "small",
    "fallback_provider": "other",
    "fallback_options": {"base_url": "http://b", "api_key": KEY},
    "model_tier": "fallback",
}


def loaded(root: Path, entry: dict[str, Any]) -> ConfigSnapshot:
    home = Home(root)
    home.agents_json.write_text(json.dumps([entry]))
    return load(home, environ={})


def test_its_key_is_a_secret(tmp_path: Path) -> None:
    snapshot = loaded(tmp_path, GIVEN)
    spec = snapshot.require("ann")
    assert (spec.fallback_model, spec.model_tier) == ("small", "fallback")
    assert KEY not in repr(spec)
    assert KEY not in str(explain_agent(snapshot, "ann"))
    assert [secret.reveal() for secret in secret_values_of(spec)] == [KEY]
    assert snapshot.warnings == ()


def test_a_changed_fallback_rebuilds_nothing(tmp_path: Path) -> None:
    before = loaded(tmp_path, {"name": "ann"}).require("ann")
    changes = diff_specs(before, loaded(tmp_path, GIVEN).require("ann"))
    assert changes
    assert {change.cls.value for change in changes.values()} == {"live"}


def test_a_fallback_that_is_none_is_warned_of(tmp_path: Path) -> None:
    warned = loaded(tmp_path, {"name": "ann", "model_tier": "fallback"}).warnings
    assert ["there is no fallback" in each.message for each in warned] == [True]


def test_an_unknown_tier_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigErrors):
        loaded(tmp_path, {"name": "ann", "model_tier": "second"})
