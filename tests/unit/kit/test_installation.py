"""A changed installation is noticed, with what changed."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError

import pytest

from agentsup.kit import installation


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    found = {"agentsup": "1.0", "pydantic-ai-slim": "2.0"}

    def version(name: str) -> str:
        if name not in found:
            raise PackageNotFoundError(name)
        return found[name]

    monkeypatch.setattr("importlib.metadata.version", version)
    installation.remember()
    yield found
    installation._at_start.clear()


def test_without_a_change_there_is_nothing_to_say(packages: dict[str, str]) -> None:
    packages["unrelated"] = "3"
    assert installation.change() == ""


def test_a_new_version_and_a_missing_package_are_named(packages: dict[str, str]) -> None:
    packages["agentsup"] = "1.1"
    del packages["pydantic-ai-slim"]
    told = installation.change()
    assert "agentsup 1.0 → 1.1" in told
    assert "pydantic-ai-slim 2.0 → missing" in told
