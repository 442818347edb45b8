"""Tool servers that misbehave, over stdio and HTTP: what each costs, and what people are told."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest

from agentsup.agents.mcp import server as serving
from agentsup.agents.mcp.exchange import called, is_block, text_of
from agentsup.agents.mcp.failures import (
    CallLost,
    CallRefused,
    NotSignedIn,
    ServerUnavailable,
)
from agentsup.kit.childenv import child_env
from tests.support.odd_mcp_server import ECHO
from tests.support.ports import free_port
from tests.support.tool_servers import SECRET, ToolServersFixture, town_of, until

pytestmark = pytest.mark.timeout(180)
ODD = ["-m", "tests.support.odd_mcp_server"]
ODD_ENV = {"PYTHONPATH": str(Path(__file__).parents[3])}
LOST = {"jsonrpc": "2.0", "id": None, "error": {"code": -32001, "message": "Session not found"}}
REFUSED = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "no session"}}
NO_ID = {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "No valid session ID"}}


class OddServer:
    """One odd server of the agent ada, and what it is told to do."""

    def __init__(self, town: ToolServersFixture, kind: str) -> None:
        self.town, self.kind = town, kind
        self.file, self.log = town.root / "told.json", town.root / "asked"
        self.port = free_port() if kind == "http" else 0
        self.program: subprocess.Popen[bytes] | None = None
        self.tell()

    def tell(self, **told: Any) -> None:
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps(told))
        new.replace(self.file)

    def asked(self, method: str) -> int:
        """How many requests of a method it has answered rightly."""
        return self.log.read_text().split().count(method) if self.log.exists() else 0

    async def start(self) -> None:
        """Start the program of a server at an address."""
        if self.kind == "stdio":
            return
        argv = [sys.executable, *ODD, str(self.file), str(self.log), "--http", str(self.port)]
        self.program = subprocess.Popen(argv, env=child_env(), stdin=subprocess.DEVNULL)
        async with asyncio.timeout(20):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                except OSError:
                    await asyncio.sleep(0.02)
                    continue
                writer.close()
                await writer.wait_closed()
                return

    async def end(self) -> None:
        if self.program is not None:
            self.program.kill()
            await asyncio.to_thread(self.program.wait)

    async def have(self, **more: Any) -> None:
        await self.start()
        if self.kind == "stdio":
            args = [*ODD, str(self.file), str(self.log)]
            entry: dict[str, Any] = {"command": sys.executable, "args": args}
            entry["env"] = ODD_ENV
        else:
            entry = {"url": f"http://127.0.0.1:{self.port}/mcp"}
        self.town.have(odd=entry | more)

    async def running(self) -> dict[str, Any]:
        return await self.town.is_state("odd", "running")

    @property
    def document(self) -> dict[str, Any]:
        return self.town.document("odd")

    async def echo(self, text: str) -> str:
        return await self.town.call("mcp:odd/echo", text=text)


@asynccontextmanager
async def odd_of(root: Path, kind: str) -> AsyncIterator[OddServer]:
    async with town_of(root) as town:
        odd = OddServer(town, kind)
        try:
            yield odd
        finally:
            await odd.end()


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "PATIENT", replace(serving.PATIENT, base_s=0.1, cap_s=0.3))


@pytest.fixture
async def web(tmp_path: Path) -> AsyncIterator[OddServer]:
    async with odd_of(tmp_path, "http") as odd:
        yield odd


@pytest.fixture(params=["stdio", "http"])
async def odd(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[OddServer]:
    async with odd_of(tmp_path, request.param) as made:
        yield made


# -- the session -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "unknown",
    [
        {"status": 404, "body": LOST},
        {"status": 404, "body": REFUSED},
        {"status": 404, "body": "Session not found"},
        {"status": 404},
        {"status": 400, "body": NO_ID},
        {"status": 400, "body": "Bad Request"},
        {"status": 410, "body": "gone"},
        {"status": 404, "body": LOST, "type": "application/json; charset=utf-8"},
    ],
    ids=str,
)
async def test_a_call_in_a_lost_session_is_made_once_in_a_new_one(
    web: OddServer, unknown: dict[str, Any]
) -> None:
    await web.have()
    await web.running()
    web.tell(forget="now", unknown=unknown)
    assert await web.echo("again") == "echo: again"
    assert (web.asked("initialize"), web.asked("tools/call")) == (2, 1)
    assert (await web.running())["error"] == ""
    assert web.document["restarts"] == 0


@pytest.mark.parametrize("code", [-32001, -32000, -32600])
async def test_a_session_whose_loss_is_told_as_an_error_is_found_by_a_probe(
    web: OddServer, code: int
) -> None:
    await web.have()
    await web.running()
    web.tell(forget="now", unknown={"error": {"code": code, "message": "Session not found"}})
    with pytest.raises(CallRefused, match="Session not found"):
        await web.echo("lost")
    await until(lambda: web.asked("initialize") == 2)
    assert await web.echo("again") == "echo: again"


async def test_an_idle_session_that_is_lost_is_opened_anew(
    web: OddServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "PROBE_S", 0.2)
    await web.have()
    await web.running()
    web.tell(forget="now", unknown={"status": 404, "body": LOST})
    await until(lambda: web.asked("initialize") == 2)
    assert (await web.running())["error"] == ""
    assert await web.echo("again") == "echo: again"


async def test_a_server_that_loses_each_session_is_asked_twice_and_no_more(web: OddServer) -> None:
    await web.have()
    await web.running()
    gone = {"status": 404, "body": LOST}
    web.tell(answers={"tools/call": gone, "ping": gone})
    with pytest.raises(ServerUnavailable, match="nothing was done"):
        await web.echo("lost")
    assert web.asked("tools/call") == 0
    await until(lambda: web.document["state"] == "running")
    assert web.asked("initialize") <= 3


async def test_a_server_that_was_started_again_is_found(web: OddServer) -> None:
    await web.have()
    await web.running()
    await web.end()
    await web.start()
    web.tell(unknown={"status": 404, "body": LOST})
    said = ""
    for _ in range(3):  # the first may meet a connection of the old one
        try:
            said = await web.echo("back")
            break
        except CallLost:
            continue
    assert said == "echo: back"
    assert (await web.running())["error"] == ""


# -- statuses --------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [401, 403])
async def test_a_server_that_wants_a_sign_in_says_so_until_it_has_one(
    web: OddServer, status: int
) -> None:
    await web.have()
    await web.running()
    web.tell(answers={"*": {"status": status, "body": "token expired"}})
    with pytest.raises(NotSignedIn, match=f"{status}.*nothing was done") as refused:
        await web.echo("x")
    assert "token expired" not in refused.value.message, "words of others are not ours"
    await until(lambda: web.document["state"] == "not_signed_in")
    assert str(status) in web.document["error"]
    assert "odd" in web.town.servers.note_for_model()
    web.tell()
    assert (await web.running())["error"] == ""
    assert await web.echo("back") == "echo: back"


async def test_a_server_that_never_let_us_in_is_not_signed_in(web: OddServer) -> None:
    web.tell(answers={"*": {"status": 401}})
    await web.have()
    await until(lambda: web.document["state"] == "not_signed_in")
    assert "401 (Unauthorized)" in web.document["error"]


@pytest.mark.parametrize("status", [500, 502, 503])
async def test_a_server_that_fails_is_away_and_comes_back(web: OddServer, status: int) -> None:
    await web.have()
    await web.running()
    web.tell(answers={"*": {"status": status, "body": "boom"}})
    with pytest.raises(CallLost, match=f"{status}.*not known"):
        await web.echo("x")
    await web.town.is_state("odd", "backoff")
    assert str(status) in web.document["error"]
    web.tell()
    assert (await web.running())["error"] == ""
    assert await web.echo("back") == "echo: back"


@pytest.mark.parametrize("status", [403, 400, 413, 429, 500, 404])
async def test_a_status_for_one_call_costs_that_call(web: OddServer, status: int) -> None:
    await web.have()
    began = (await web.running())["since"]
    web.tell(answers={"tools/call": {"status": status, "body": "no"}}, only=1)
    with pytest.raises((ServerUnavailable, CallLost), match=str(status)):
        await web.echo("x")
    assert await web.echo("next") == "echo: next"
    assert (web.asked("initialize"), web.asked("tools/call")) == (1, 1)
    assert (web.document["state"], web.document["since"]) == ("running", began)


@pytest.mark.parametrize("status", [200, 400, 404])
async def test_an_error_of_the_protocol_is_the_servers_word(web: OddServer, status: int) -> None:
    await web.have()
    await web.running()
    error = {"code": -32602, "message": "no such tool here"}
    body = {"jsonrpc": "2.0", "id": None, "error": error}
    told: dict[str, Any] = {"error": error} if status == 200 else {"status": status, "body": body}
    web.tell(answers={"tools/call": told})
    with pytest.raises(CallRefused, match="no such tool here"):
        await web.echo("x")
    assert web.asked("initialize") == 1


async def test_an_address_that_is_none_is_named_by_its_status(web: OddServer) -> None:
    await web.start()
    web.town.have(odd={"url": f"http://127.0.0.1:{web.port}/wrong"})
    await until(lambda: "404" in web.document["error"])


# -- errors as answers -----------------------------------------------------------------------------


@pytest.mark.parametrize("code", [-32000, -32001, -32603])
async def test_an_error_with_a_code_of_the_library_is_the_servers_all_the_same(
    odd: OddServer, code: int
) -> None:
    await odd.have()
    await odd.running()
    odd.tell(answers={"tools/call": {"error": {"code": code, "message": "the disk is full"}}})
    with pytest.raises(CallRefused, match="the disk is full"):
        await odd.echo("x")
    odd.tell()
    assert await odd.echo("next") == "echo: next"
    assert odd.asked("initialize") == 1


async def test_a_ping_that_is_no_method_of_the_server_is_no_sickness(
    odd: OddServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "PROBE_S", 0.1)
    odd.tell(answers={"ping": {"error": {"code": -32601, "message": "Method not found"}}})
    await odd.have()
    await odd.running()
    await until(lambda: odd.asked("tools/list") >= 3)
    assert odd.asked("initialize") == 1
    assert odd.document["state"] == "running"


IMAGE = {"type": "image", "data": "", "mimeType": "image/png"}


@pytest.mark.parametrize(
    "result, text",
    [
        ({"content": "plain"}, "plain"),
        ({"content": {"type": "text", "text": "one"}}, "one"),
        ({"content": ["plain", {"type": "text", "text": "one"}]}, "plain\none"),
        ({"content": [{"text": "no type"}]}, "no type"),
        ({"content": [{"type": "odd", "text": "odd"}, IMAGE]}, "odd\n[image image/png, not shown]"),
        ({"content": [{"type": "image", "data": "x"}]}, "[image, not shown]"),
        ({"content": [{"type": "text", "text": None}]}, '{"type": "text", "text": null}'),
        ({"structuredContent": {"a": 1}}, '{"a": 1}'),
        ({"content": [], "structuredContent": [1]}, '{"value": [1]}'),
        (  # memos#6226
            {"content": [{"type": "text", "text": "2 found"}], "structuredContent": {"a": [1]}},
            '2 found\n{"a": [1]}',
        ),
        (
            {"content": [{"type": "text", "text": '{"a":1}'}], "structuredContent": {"a": 1}},
            '{"a":1}',
        ),
        (
            {"content": [{"type": "text", "text": "x"}], "structuredContent": {"result": "x"}},
            "x",
        ),
        # mcp-server-cloudflare#12
        ({"toolResult": {"content": []}}, '{"toolResult": {"content": []}}'),
        ({"answer": 42}, '{"answer": 42}'),
        ({"content": [], "isError": None}, "(the tool returned nothing)"),
    ],
    ids=lambda each: json.dumps(each)[:40],
)
def test_a_result_of_a_call_that_was_done_is_read(result: dict[str, Any], text: str) -> None:
    read = types.CallToolResult.model_validate(called(result, is_block), by_name=False)
    assert text_of(read) == text


async def test_an_odd_part_of_a_result_costs_itself(odd: OddServer) -> None:
    await odd.have()
    await odd.running()
    parts = [{"type": "odd", "text": "odd"}, {"type": "text", "text": "well"}]
    odd.tell(answers={"tools/call": {"result": {"content": parts}}})
    assert "odd\nwell" in await odd.echo("x")


@pytest.mark.parametrize("result", [{}, {"content": 7}])
async def test_a_result_that_is_none_costs_that_call(
    odd: OddServer, result: dict[str, Any]
) -> None:
    await odd.have()
    await odd.running()
    odd.tell(answers={"tools/call": {"result": result}}, only=1)
    with pytest.raises(CallRefused, match="no result"):
        await odd.echo("x")
    assert await odd.echo("next") == "echo: next"


@pytest.mark.parametrize("status, kind", [(200, "text/html"), (202, "text/plain")])
async def test_a_page_in_place_of_an_answer_is_no_word_of_the_tool(
    web: OddServer, status: int, kind: str
) -> None:
    await web.have()
    await web.running()
    page = {"status": status, "body": "<h1>Sign in</h1>", "type": kind}
    web.tell(answers={"tools/call": page}, only=1)
    with pytest.raises(CallLost, match="not known"):
        await web.echo("x")
    assert await web.echo("next") == "echo: next"
    web.tell(answers={"*": page})
    with pytest.raises(CallLost):
        await web.echo("x")
    await web.town.is_state("odd", "backoff")
    assert str(status) in web.document["error"]


async def test_a_redirect_to_the_same_origin_is_followed_and_no_other(web: OddServer) -> None:
    web.tell(moved="/mcp/")
    await web.have()
    await web.running()
    assert await web.echo("x") == "echo: x"
    web.tell(moved="http://localhost:1/mcp")
    with pytest.raises(ServerUnavailable, match="307") as refused:
        await web.echo("x")
    assert "localhost" not in refused.value.message, "a server's words are not ours"
    await until(lambda: "Redirect to http://localhost:1/mcp not followed" in web.document["error"])


@pytest.mark.parametrize(
    "said",
    [
        {"capabilities": {}, "serverInfo": {"name": "x", "version": "1"}},
        {"capabilities": {"tools": {}}, "serverInfo": {"name": "x"}},
        {"capabilities": {"tools": {}}},
        {"serverInfo": None, "capabilities": None},
    ],
    ids=str,
)
async def test_a_server_that_says_little_of_itself_is_used(
    odd: OddServer, said: dict[str, Any]
) -> None:
    odd.tell(answers={"initialize": {"result": {"protocolVersion": "2025-06-18", **said}}})
    await odd.have()
    assert (await odd.running())["tools"] == ["mcp:odd/echo"]


# -- tools -----------------------------------------------------------------------------------------

OBJECT = {"type": "object"}
NAMELESS: tuple[Any, ...] = ("echo", None, {"inputSchema": OBJECT}, {"name": 7})
UNFIT: dict[str, Any] = {
    "array": {"type": "array"},
    "text": "object",
    "property": {"type": "object", "properties": {"a": "text"}},
    "required": {"type": "object", "required": [1]},
}
"""Schemas of tools that can't be called."""
FIT: dict[str, dict[str, Any]] = {
    "without": {},
    "null": {"inputSchema": None},
    "empty": {"inputSchema": {}},
    "any": {"inputSchema": {"anyOf": [{"required": ["a"]}]}},
    "types": {"inputSchema": {"type": ["object", "null"]}},
    "required": {"inputSchema": {"type": "object", "required": True}},
    "described": {"description": 5, "inputSchema": OBJECT},
    "hints": {"annotations": "safe", "inputSchema": OBJECT},
    "hint": {"annotations": {"readOnlyHint": "yes"}, "inputSchema": OBJECT},
    "output": {"outputSchema": [], "inputSchema": OBJECT},
    "icons": {"icons": "x", "_meta": 1, "inputSchema": OBJECT},
}


async def test_unfit_tools_are_left_out_and_named(odd: OddServer) -> None:
    unfit = [{"name": name, "inputSchema": schema} for name, schema in UNFIT.items()]
    odd.tell(tools=[*NAMELESS, *unfit, ECHO])
    await odd.have()
    document = await odd.running()
    assert document["tools"] == ["mcp:odd/echo"]
    named = sorted(note.split()[0] for note in document["notes"])
    assert named == sorted([*UNFIT, *(["a"] * len(NAMELESS))]), document["notes"]
    assert await odd.echo("x") == "echo: x"


async def test_odd_tools_that_can_be_called_are_taken(odd: OddServer) -> None:
    odd.tell(tools=[{"name": name} | rest for name, rest in FIT.items()])
    await odd.have()
    document = await odd.running()
    assert document["tools"] == sorted(f"mcp:odd/{name}" for name in FIT)
    assert document["notes"] == []
    found = odd.town.servers.get("mcp:odd/types")
    assert found is not None
    assert found.schema["type"] == "object"


async def test_unfit_tools_that_nobody_chose_are_not_told(odd: OddServer) -> None:
    odd.tell(tools=[{"name": "array", "inputSchema": {"type": "array"}}, ECHO])
    await odd.have(tools=["echo"])
    assert (await odd.running())["notes"] == []


async def test_surplus_tools_are_counted_and_named_by_their_server(odd: OddServer) -> None:
    odd.tell(tools=[{"name": f"t{n}", "inputSchema": OBJECT} for n in range(160)])
    await odd.have()
    document = await odd.running()
    assert len(document["tools"]) == 128
    (note,) = document["notes"]
    assert note.startswith("32 tools are left out")


@pytest.mark.parametrize("cursor", ["8", ""], ids=["codebase-memory-mcp#1247", "java-sdk#628"])
async def test_a_page_that_is_its_own_next_is_read_once(tmp_path: Path, cursor: str) -> None:
    async with odd_of(tmp_path, "stdio") as odd:
        odd.tell(answers={"tools/list": {"result": {"tools": [ECHO], "nextCursor": cursor}}})
        await odd.have()
        document = await odd.running()
        assert (document["tools"], document["notes"]) == (["mcp:odd/echo"], [])


async def test_what_is_no_list_of_tools_is_told(odd: OddServer) -> None:
    odd.tell(tools="echo")
    await odd.have()
    await until(lambda: odd.document["error"])
    assert odd.document["state"] != "running"


# -- the start -------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["initialize", "tools/list"])
async def test_a_start_that_hangs_names_what_bounds_it(odd: OddServer, method: str) -> None:
    odd.tell(answers={method: {"hang": True}})
    await odd.have(start_timeout_s=0.5)
    await until(lambda: "0.5 s (start_timeout_s)" in odd.document["error"])


async def test_a_program_that_hangs_at_its_first_start_is_tried_once(tmp_path: Path) -> None:
    async with odd_of(tmp_path, "stdio") as odd:
        odd.tell(says="Ok to proceed? [y]", answers={"initialize": {"hang": True}})
        await odd.have(start_timeout_s=4.0)
        document = await odd.town.is_state("odd", "failed")
        assert "not tried again until its entry is changed" in document["error"]
        assert "it said: Ok to proceed? [y]" in document["error"]
        assert (document["restarts"], document["next_retry_at"]) == (0, None)
        odd.tell()
        await odd.have(start_timeout_s=20.0)
        assert (await odd.running())["error"] == ""


async def test_a_program_that_has_begun_before_is_tried_again(tmp_path: Path) -> None:
    async with odd_of(tmp_path, "stdio") as odd:
        await odd.have(start_timeout_s=4.0)
        await odd.running()
        odd.tell(answers={"initialize": {"hang": True}})
        (group,) = await odd.town.groups()
        os.killpg(group, signal.SIGKILL)
        await until(lambda: odd.document["restarts"] > 1)
        odd.tell()
        await odd.running()


async def test_a_server_that_hangs_elsewhere_is_tried_again(web: OddServer) -> None:
    web.tell(answers={"initialize": {"hang": True}})
    await web.have(start_timeout_s=0.5)
    await until(lambda: web.document["restarts"] > 0)
    web.tell()
    await web.running()


async def test_a_refusal_to_begin_is_quoted(odd: OddServer) -> None:
    odd.tell(answers={"initialize": {"error": {"code": -32000, "message": "no licence"}}})
    await odd.have()
    await until(lambda: "refused to begin: no licence" in odd.document["error"])


@pytest.mark.parametrize("ending", ["", "\n"])
async def test_what_a_program_asks_at_its_start_is_quoted(tmp_path: Path, ending: str) -> None:
    asked = f"Ok to proceed? [y] token {SECRET}{ending}"
    async with odd_of(tmp_path, "stdio") as odd:
        odd.tell(says=asked, answers={"initialize": {"hang": True}})
        await odd.have(start_timeout_s=15.0, env=ODD_ENV | {"KEY": "env:THE_KEY"})
        await until(lambda: "it said: Ok to proceed? [y] token ***" in odd.document["error"])
        assert SECRET not in odd.document["error"]


async def test_a_program_works_in_the_folder_that_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "tools"
    folder.mkdir()
    async with town_of(tmp_path / "home") as town:
        town.have(odd={"command": "sh", "args": ["-c", "pwd >&2; exit 3"], "cwd": str(folder)})
        await until(lambda: str(folder) in town.document("odd")["error"])
        gone = {"command": "sh", "args": ["-c", "pwd"], "cwd": str(tmp_path / "gone")}
        town.have(odd=gone)
        await until(lambda: "can't be started in" in town.document("odd")["error"])


async def test_a_command_line_in_place_of_a_program_is_explained(tmp_path: Path) -> None:
    async with town_of(tmp_path) as town:
        town.have(odd={"command": "no-such-npx -y x"})
        await until(lambda: '"args": ["-y", "x"]' in town.document("odd")["error"])
