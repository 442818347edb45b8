"""``send`` says what it waits for, before anybody wonders."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from agentsup.cli.commands import send
from agentsup.cli.connect.client import DaemonClient, HttpReply
from agentsup.cli.connect.locate import DaemonLocation
from agentsup.config import Home

DOWN = "http://127.0.0.1:9/v1 can't be reached"


@dataclass
class Daemon:
    """Has no answer until it was asked three times; the message fails meanwhile, if it does."""

    error: str
    location: DaemonLocation
    asked: int = field(default=0)

    def ask(self, method: str, path: str, body: Any = None, **more: Any) -> HttpReply:
        self.asked += 1
        if self.asked < 4:
            return HttpReply(504, {"code": "timed_out", "message_id": "msg_1"})
        return HttpReply(200, {"text": "hello"})

    def get(self, path: str, query: Any = None) -> Any:
        is_question = path == "/questions"
        return {"questions": []} if is_question else {"waits_for": None, "error": self.error}


@pytest.mark.parametrize("error", ["", DOWN])
def test_silence_is_explained_once(
    error: str,
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    daemon = Daemon(error, DaemonLocation(Home(tmp_path)))
    answer = send.ask(cast("DaemonClient", daemon), {"to": "main", "text": "hi"}, 60.0)
    assert answer == {"text": "hello"}
    said = f"* it is tried again: {DOWN}\n" if error else "* main is at work …\n"
    assert capsys.readouterr().err == said
