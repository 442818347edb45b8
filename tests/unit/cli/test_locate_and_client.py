"""Whom a command talks to, and how it says that nobody answers."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentsup.cli.connect.client import ConnectionLost, DaemonClient, DaemonRefused, segment
from agentsup.cli.connect.failure import CommandFailed, DaemonUnreachable
from agentsup.cli.connect.locate import Address, DaemonLocation, holder_of, is_alive
from agentsup.cli.main import hoisted, main
from agentsup.cli.output.reads import READS, path_of
from agentsup.config import Home
from agentsup.kit import proctable
from agentsup.kit.files import HomeLock


class Answers(http.server.BaseHTTPRequestHandler):
    """Answers by path; remembers what it was asked."""

    asked: list[tuple[str, str, Any, str]]

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        auth = self.headers.get("Authorization", "")
        type(self).asked.append((self.command, self.path, body, auth))
        if self.path == "/cut":
            self.connection.close()
            return
        status, document = {
            "/missing": (
                404,
                {"code": "not_found", "detail": "there is no agent 'x'", "hint": "did you mean y?"},
            ),
            "/locked": (401, {"code": "unauthorised", "detail": "no"}),
            "/broken": (500, None),
        }.get(self.path, (200, {"path": self.path}))
        data = b"<html>" if document is None else json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = _serve  # noqa: N815 - names of the library

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as above
        pass


@pytest.fixture
def server() -> Iterator[tuple[str, list[tuple[str, str, Any, str]]]]:
    handler = type("Handler", (Answers,), {"asked": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}", handler.asked  # type: ignore[attr-defined]  # set above
        running.shutdown()
        thread.join()


def client_to(url: str, tmp_path: Path) -> DaemonClient:
    return DaemonClient(DaemonLocation.of(str(tmp_path), {}), Address(url, "secret"))


def test_the_token_and_the_body_are_sent(server: tuple[str, list[Any]], tmp_path: Path) -> None:
    url, asked = server
    client = client_to(url, tmp_path)
    assert client.get("/messages", {"agent": "a b", "state": None})["path"] == "/messages?agent=a+b"
    client.post("/stop_all")
    client.post(f"/agents/{segment('a/b')}/stop", {"x": "ä"})
    assert asked == [
        ("GET", "/messages?agent=a+b", None, "Bearer secret"),
        ("POST", "/stop_all", {}, "Bearer secret"),
        ("POST", "/agents/a%2Fb/stop", {"x": "ä"}, "Bearer secret"),
    ]


@pytest.mark.parametrize(
    "path, said",
    [
        ("/missing", r"^there is no agent 'x' \(did you mean y\?\)$"),
        ("/locked", "does not know this token"),
        ("/broken", "<html>"),
    ],
)
def test_a_refusal_is_one_sentence(
    server: tuple[str, list[Any]], tmp_path: Path, path: str, said: str
) -> None:
    with pytest.raises(DaemonRefused, match=said):
        client_to(server[0], tmp_path).get(path)


def test_a_lost_connection_is_not_told_as_no_daemon(
    server: tuple[str, list[Any]], tmp_path: Path
) -> None:
    with pytest.raises(ConnectionLost, match="was lost"):
        client_to(server[0], tmp_path).get("/cut")


def test_nobody_there(tmp_path: Path) -> None:
    client = client_to("http://127.0.0.1:9", tmp_path)
    with pytest.raises(
        DaemonUnreachable, match=r"no daemon runs for .*start one with `agentsup --home"
    ):
        client.get("/status")


def home_with(tmp_path: Path, daemon: object, token: str | None = "t0ken") -> str:
    (tmp_path / "daemon.json").write_text(daemon if isinstance(daemon, str) else json.dumps(daemon))
    if token is not None:
        (tmp_path / "api.token").write_text(token + "\n")
    return str(tmp_path)


WRITTEN = {"pid": 12, "url": "http://127.0.0.1:1/", "boot_id": "b", "started_at": 1}
ELSEWHERE = {"AGENTSUP_URL": "http://far:2/", "AGENTSUP_TOKEN": "far"}


def test_a_home_wins_over_a_url(tmp_path: Path) -> None:
    root = home_with(tmp_path, WRITTEN)
    expected = Address("http://127.0.0.1:1", "t0ken", 12, "b")
    assert DaemonLocation.of(root, ELSEWHERE).address() == expected
    assert DaemonLocation.of(None, {**ELSEWHERE, "AGENTSUP_HOME": root}).address() == expected


def of_home(root: Path, **other: object) -> dict[str, object]:
    here = root.stat()
    return {
        **WRITTEN,
        "home": str(root),
        "home_inode": [here.st_dev, here.st_ino],
        "machine_boot": proctable.boot_id(),
        **other,
    }


def test_a_copied_home_has_no_daemon_of_its_own(tmp_path: Path) -> None:
    original = tmp_path / "original"
    original.mkdir()
    home_with(original, of_home(original))
    assert DaemonLocation.of(str(original), {}).address().pid == 12
    copy = shutil.copytree(original, tmp_path / "copy")
    with pytest.raises(DaemonUnreachable, match=f"daemon.json is a copy of that in {original}"):
        DaemonLocation.of(str(copy), {}).address()
    moved = original.rename(tmp_path / "moved")
    assert DaemonLocation.of(str(moved), {}).address().pid == 12


def test_an_address_of_an_earlier_start_of_the_machine_is_nobodys(tmp_path: Path) -> None:
    home_with(tmp_path, of_home(tmp_path, machine_boot="another"))
    with pytest.raises(DaemonUnreachable, match="no daemon runs for"):
        DaemonLocation.of(str(tmp_path), {}).address()


def test_a_copied_lock_file_names_nobody(tmp_path: Path) -> None:
    home, copy = Home(tmp_path / "home"), Home(tmp_path / "copy")
    home.create()
    with HomeLock(home.lock):
        shutil.copytree(home.root, copy.root)
        assert copy.lock.read_text() == home.lock.read_text()
        assert holder_of(home) == os.getpid()
        assert holder_of(copy) is None
    assert holder_of(home) is None


def test_a_url_wins_over_the_usual_home() -> None:
    assert DaemonLocation.of(None, ELSEWHERE).address() == Address("http://far:2", "far")


def test_a_url_without_a_token_says_what_to_set() -> None:
    with pytest.raises(CommandFailed, match="AGENTSUP_TOKEN is not set"):
        DaemonLocation.of(None, {"AGENTSUP_URL": "http://far:2"}).address()


@pytest.mark.parametrize("daemon", ["", "{", "[]", {"pid": 1}])
def test_half_a_daemon_file_is_no_daemon(tmp_path: Path, daemon: object) -> None:
    with pytest.raises(DaemonUnreachable):
        DaemonLocation.of(home_with(tmp_path, daemon), {}).address()


def test_a_missing_token_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match=r"api\.token is missing"):
        DaemonLocation.of(home_with(tmp_path, WRITTEN, token=None), {}).address()


def test_processes() -> None:
    assert is_alive(os.getpid())
    assert not is_alive(2**22 + 1)


@pytest.mark.parametrize(
    "line, expected",
    [
        (["agents", "list", "--home", "x"], ["--home", "x", "agents", "list"]),
        (["run", "--home=x", "--port", "1"], ["--home", "x", "run", "--port", "1"]),
        (["send", "a", "--", "--home", "x"], ["send", "a", "--", "--home", "x"]),
        (["send", "a", "--home"], ["send", "a", "--home"]),
        ([], []),
    ],
)
def test_home_may_stand_anywhere(line: list[str], expected: list[str]) -> None:
    assert hoisted(line) == expected


def test_only_plain_reads_are_read_quickly() -> None:
    assert path_of(["agents", "list"]) == "/agents"
    assert path_of(["agents", "show", "a b"]) == "/agents/a%20b"
    for line in (
        "agents",
        "agents lst",
        "agents list x",
        "agents show",
        "agents show -h",
        "send a b",
    ):
        assert path_of(line.split()) is None
    assert all(path.startswith("/") for path in READS.values())


@pytest.mark.parametrize(
    "line, code, said",
    [
        (["agnts"], 2, "Did you mean 'agents'?"),
        (["agents", "lst"], 2, "Did you mean 'list'"),
        (["agents", "list", "--jsn"], 2, "--json"),
        (["messages", "show"], 2, "ID"),
        (["agents", "list"], 1, "no daemon runs for"),
        (["agents", "list", "--json"], 1, "no daemon runs for"),
        (["logs"], 1, "there is no log"),
        (["agents", "validate"], 1, "/none init`"),
        (["agents", "add", "x", "--set", "nonsense"], 2, "KEY=VALUE"),
        (["chat"], 1, "no daemon runs for"),
        (["stop"], 1, "nothing was stopped"),
    ],
)
def test_exit_codes_and_sentences(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, line: list[str], code: int, said: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--home", str(tmp_path / "none"), *line])
    out, err = capsys.readouterr()
    assert ended.value.code == code
    assert said in err
    assert out == ""
    if code == 1:
        assert err.startswith("agentsup: ")
        assert err.count("\n") == 1
    assert not (tmp_path / "none").exists()


RAW = os.fsdecode(b"a\xff")
"""An argument that is no UTF-8, as a shell may pass it."""


def test_a_name_that_is_no_text_still_makes_a_path() -> None:
    assert segment(RAW) == "a%3F"
    assert segment("a/../b\0") == "a%2F..%2Fb%00"


def test_a_plain_read_of_such_a_name() -> None:
    assert path_of(["agents", "show", RAW]) == "/agents/a%3F"
