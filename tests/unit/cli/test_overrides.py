"""``agents set``: what it sends for what is typed, and what it says of the answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from agentsup.cli.app import app
from agentsup.cli.commands import agents

ROW = {
    "agent": "ann",
    "field": "turn_timeout_s",
    "value": 1800.0,
    "origin": "built-in",
    "takes": "live",
    "doc": "Time limit of one turn, in seconds.",
    "choices": [],
}


class Daemon:
    """Keeps what was asked of it."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Any]] = []

    def get(self, path: str) -> Any:
        self.sent.append((path, None))
        return {"agent": "ann", "fields": [ROW]}

    def post(self, path: str, body: Any, *, timeout_s: float) -> Any:
        assert timeout_s > 0
        self.sent.append((path, body))
        changed = {**ROW, "field": body["field"], "value": body["value"], "origin": "override"}
        is_raise = body["value"] == "bypassPermissions"
        return {"success": True, **changed, "before": None, "raises_rights": is_raise}


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Daemon:
    made = Daemon()
    monkeypatch.setattr(agents, "client_of", lambda ctx: made)
    return made


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["agents", "set", *words], standalone_mode=True)


@pytest.mark.parametrize(
    "words, body",
    [
        (("turn_timeout_s", "60"), {"field": "turn_timeout_s", "value": 60}),
        (("model", "5"), {"field": "model", "value": "5"}),
        (("model", "--clear"), {"field": "model", "value": None}),
    ],
)
def test_a_value_is_sent_as_the_field_wants_it(
    daemon: Daemon, words: tuple[str, ...], body: dict[str, Any]
) -> None:
    done = run("ann", *words)
    assert done.exit_code == 0, done.output
    assert daemon.sent == [("/agents/ann/overrides", body)]


def test_what_asks_less_is_told(daemon: Daemon) -> None:
    assert "without asking" in run("ann", "permission_mode", "bypassPermissions").output
    assert "without asking" not in run("ann", "permission_mode", "plan").output
    assert len(daemon.sent) == 2


def test_without_a_value_it_shows(daemon: Daemon) -> None:
    assert "1800" in run("ann").output
    assert "Time limit" in run("ann", "turn_timeout_s").output
    assert json.loads(run("ann", "turn_timeout_s", "--json").output) == ROW
    assert {body for _, body in daemon.sent} == {None}


@pytest.mark.parametrize("words", [("modle",), ("--clear",), ("model", "x", "--clear")])
def test_wrong_use_fails_and_changes_nothing(daemon: Daemon, words: tuple[str, ...]) -> None:
    assert run("ann", *words).exit_code != 0
    assert all(body is None for _, body in daemon.sent)
