"""``exec`` and ``web_fetch`` against real programs and a real server, as an attacker uses them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from agentsup.agents.tools import exec_tool
from agentsup.agents.tools.web import fetch as web_module
from agentsup.agents.tools.web.addresses import is_public
from agentsup.agents.tools.web.fetch import _CHARSETS, MAX_BYTES, WebRules, is_own, web_tool
from agentsup.engines.process import Fencing, fencing
from agentsup.kit.fence import Fence
from agentsup.kit.pool import BoundedPool
from agentsup.kit.proctable import members
from agentsup.model.errors import AgentsupError, NotFound, Overloaded, Refused, TimedOut
from agentsup.model.ids import CallId
from agentsup.model.tool import ToolContext
from tests.support.bound import BOUND_S
from tests.support.turns import lease_of


@dataclass
class Book:
    """Keeps what a tool started; ``released`` is never asked for."""

    groups: list[int] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)
    started: asyncio.Event = field(default_factory=asyncio.Event)

    async def spawned(self, pgid: int, started_ticks: int, argv0: str) -> None:
        self.groups.append(pgid)
        self.started.set()

    async def reaped(self, pgid: int) -> None:
        self.gone.append(pgid)

    def released(self) -> Any:
        return contextlib.nullcontext()


def context(workspace: Path, book: Book) -> ToolContext:
    return ToolContext(
        lease=lease_of("a", "m", "s"),
        slot=book,
        agent_name="ann",
        call_id=CallId("c"),
        workspace=str(workspace),
        children=book,
    )


async def run(workspace: Path, *argv: str, book: Book | None = None, **args: Any) -> str:
    tool = exec_tool(lambda: {"PATH": os.environ["PATH"]})
    return await tool.run(context(workspace, book or Book()), {"argv": list(argv), **args})


# -- programs ----------------------------------------------------------------------------------------


async def test_a_program_runs_in_the_workspace_without_a_shell(tmp_path: Path) -> None:
    (tmp_path / "a b").write_text("x")
    assert await run(tmp_path, "ls", "a b") == "exit code 0\na b"
    assert (await run(tmp_path, "echo", "$HOME; ls | cat `id` *")).endswith(
        "$HOME; ls | cat `id` *"
    )
    assert await run(tmp_path, "pwd") == f"exit code 0\n{tmp_path}"
    assert (await run(tmp_path, "sh", "-c", "echo no >&2; exit 42")) == "exit code 42\nno"
    with pytest.raises(NotFound):
        await run(tmp_path, "no-such-program")


async def test_what_it_leaves_in_the_background_is_ended_and_told(tmp_path: Path) -> None:
    said = await run(tmp_path, "sh", "-c", "nohup sleep 300 >/dev/null 2>&1 &")
    assert said.startswith("exit code 0, no output\n[1 left running in the background (")


async def test_no_secret_is_in_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTSUP_TOKEN", "hunter2-token")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-hunter2")
    shown = await run(tmp_path, "cat", "/proc/self/environ", "/proc/self/cmdline")
    assert "hunter2" not in shown
    assert f"HOME={tmp_path}" not in shown


async def test_what_is_written_to_the_workspace_changes_no_program(tmp_path: Path) -> None:
    """Programs take orders from files in their home, and are found by their path."""
    workspace = tmp_path / "ann" / "workspace"
    (workspace / "bin").mkdir(parents=True)
    (workspace / ".gitconfig").write_text("[alias]\n\tplanted = !echo from the workspace\n")
    for place in (workspace, workspace / "bin"):
        (place / "true").write_text("#!/bin/sh\necho from the workspace\n")
        (place / "true").chmod(0o755)
    (tmp_path / "link").symlink_to(workspace / "bin")
    path = f".:bin::{workspace}/bin:{tmp_path}/link:{os.environ['PATH']}"
    tool = exec_tool(lambda: {"PATH": path})

    async def said(*argv: str) -> str:
        return await tool.run(context(workspace, Book()), {"argv": list(argv)})

    assert await said("true") == "exit code 0, no output"
    assert await said("sh", "-c", "exec true") == "exit code 0, no output"
    assert "from the workspace" not in await said("git", "planted")
    assert "from the workspace" in await said("bin/true")
    home = tmp_path / "ann" / "exec-home"
    assert home.stat().st_mode & 0o777 == 0o700


async def test_each_persons_work_has_a_home_of_its_own(tmp_path: Path) -> None:
    """A program takes orders from its home, and keeps there what it was told."""
    workspace = tmp_path / "ann" / "workspace"
    workspace.mkdir(parents=True)
    tool = exec_tool(lambda: {"PATH": os.environ["PATH"]})

    async def home_of(person: str) -> str:
        about = context(workspace, Book())
        message = replace(about.lease.message, person=person)
        about = replace(about, lease=replace(about.lease, message=message))
        script = 'cat "$HOME/kept"; echo kept > "$HOME/kept"; echo "$HOME"'
        said = await tool.run(about, {"argv": ["sh", "-c", script]})
        return "kept" if "\nkept\n" in said else said.splitlines()[-1]

    homes = [await home_of(person) for person in ("operator", "person:anna", "person:ben")]
    assert len({*homes}) == 3
    assert homes[0] == str(tmp_path / "ann" / "exec-home")
    assert [await home_of(person) for person in ("", "nobody", "person:anna")] == ["kept"] * 3


async def test_a_disk_that_does_not_answer_keeps_one_call_until_it_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, over, pool = threading.Event(), threading.Event(), BoundedPool("files")

    def rules_of(fence: Fence) -> int:
        begun.set()
        over.wait(60)
        raise OSError("too late")

    monkeypatch.setattr(fencing, "rules_of", rules_of)
    closed = Fencing((str(tmp_path / "closed"),))
    tool = exec_tool(lambda: {"PATH": os.environ["PATH"]}, lambda: closed, pool)
    call = asyncio.ensure_future(tool.run(context(tmp_path, Book()), {"argv": ["true"]}))
    try:
        async with asyncio.timeout(BOUND_S):
            while not begun.is_set():
                await asyncio.sleep(0.01)
            call.cancel()
            await asyncio.wait({call})
        assert call.cancelled()
        assert await pool.run(lambda: "well", key="ben") == "well"
    finally:
        over.set()
    async with asyncio.timeout(BOUND_S):
        while pool._keys:
            await asyncio.sleep(0.01)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux does it")
async def test_nothing_it_starts_gains_anothers_rights(tmp_path: Path) -> None:
    shown = await run(tmp_path, "sh", "-c", "grep NoNewPrivs /proc/self/status")
    assert shown.split()[-1] == "1"


async def test_output_without_end_is_bounded(tmp_path: Path) -> None:
    shown = await run(tmp_path, "head", "-c", "5000000", "/dev/zero")
    assert len(shown) < 1_100_000
    assert shown.endswith("[the output was cut at 1048576 bytes]")


async def test_a_program_over_its_time_is_gone_with_all_it_started(tmp_path: Path) -> None:
    book = Book()
    script = "trap '' TERM; sleep 100 & sleep 100"
    with pytest.raises(TimedOut):
        await run(tmp_path, "sh", "-c", script, book=book, timeout=0.3)
    assert book.groups == book.gone
    assert members(book.groups[0]) == []


async def test_a_cancelled_call_takes_its_program_along(tmp_path: Path) -> None:
    book = Book()
    task = asyncio.ensure_future(run(tmp_path, "sleep", "100", book=book))
    await book.started.wait()
    task.cancel()
    await asyncio.wait({task}, timeout=BOUND_S)
    assert task.cancelled()
    assert members(book.groups[0]) == []


# -- the web -----------------------------------------------------------------------------------------

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Web:
    """One server on loopback in the place of the public web, and what its names resolve to."""

    port: int = 0
    names: dict[str, list[list[str]]] = field(default_factory=dict)
    """For each name what it resolves to, one time after the other."""
    asked: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    answers: dict[str, Answer] = field(default_factory=dict)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def resolve(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        turns = self.names.get(host, [["127.0.0.1"]])
        return turns.pop(0) if len(turns) > 1 else turns[0]

    async def fetch(self, url: str, **more: Any) -> str:
        rules = WebRules(
            resolve=self.resolve,
            # The server's own address is the public web; everything else is judged as ever.
            is_public=lambda address: address == "127.0.0.1" or is_public(address),
            is_own=more.pop("is_own", lambda address: False),
            ports=frozenset((self.port,)),
            **more,
        )
        tool = web_tool(rules)
        assert tool.check is not None
        if (problem := tool.check({"url": url})) is not None:
            return f"refused: {problem}"
        return await tool.run(context(Path("/"), Book()), {"url": url})

    def at(self, path: str, host: str = "example.org") -> str:
        return f"http://{host}:{self.port}{path}"


@pytest.fixture
async def town() -> AsyncIterator[Web]:
    found = Web()

    async def handle(request: web.Request) -> web.StreamResponse:
        found.paths.append(request.path)
        return await found.answers[request.path](request)

    server = web.Server(handle)  # type: ignore[arg-type]
    runner = web.ServerRunner(server, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    found.port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    yield found
    found.over.set()
    await runner.cleanup()


def page(text: str, kind: str = "text/html") -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(text=text, content_type=kind)

    return answer


def moved(to: str) -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=302, headers={"Location": to})

    return answer


async def test_a_page_is_fetched_as_text(town: Web) -> None:
    town.answers["/"] = page(
        "<head><title>t</title></head><p>Hello <b>you</b> &amp; me</p><script>x</script>"
    )
    assert (await town.fetch(town.at("/"))).endswith("status 200, text/html\n\nHello you & me")


@pytest.mark.parametrize(
    "page_text, shown",
    [
        ("a<STYLE>x</style >b<svg>y</svg\n>c", "a b c"),
        ("a<script>b<style>c</style>d", "ab d"),
        ("a<scr\u0131pt>b</script>", "ab"),
        ("one<br/>two</p >three<b", "one\ntwo\nthree<b"),
        ("1 < 2 <i>and</i> 3", "1 and 3"),
    ],
)
async def test_what_is_kept_of_a_page(town: Web, page_text: str, shown: str) -> None:
    town.answers["/"] = page(page_text)
    assert (await town.fetch(town.at("/"))).partition("\n\n")[2] == shown


@pytest.mark.parametrize("piece", ["<", "<br ", "<script>", "<script></", "<style><svg>"])
async def test_no_page_takes_longer_than_its_length(town: Web, piece: str) -> None:
    # Searched anew from each sign, any of these would hold the process for minutes or hours.
    town.answers["/"] = page(piece * (MAX_BYTES // len(piece)))
    assert "status 200" in await town.fetch(town.at("/"))


@pytest.mark.parametrize(
    "target",
    [
        "http://169.254.169.254/latest/meta-data",
        "http://[::ffff:169.254.169.254]/",
        "http://127.0.0.2:{port}/",
        "http://2130706434:{port}/",
        "http://0x7f000002:{port}/",
        "http://0177.0.0.2:{port}/",
        "http://127.2:{port}/",
        "http://inner.example.org:{port}/",
        "http://example.org:22/",
        "file:///etc/passwd",
        "//169.254.169.254:{port}/",
        "http://user@example.org:{port}/",
    ],
)
async def test_no_redirection_leads_inside(town: Web, target: str) -> None:
    forms = ("2130706434", "0x7f000002", "0177.0.0.2", "127.2", "inner.example.org")
    town.names = {form: [["127.0.0.2"]] for form in forms}
    url = target.format(port=town.port)
    town.answers["/"] = moved(url)
    with pytest.raises(AgentsupError):
        await town.fetch(town.at("/"))
    assert town.paths == ["/"]
    if not url.startswith("//"):
        with contextlib.suppress(AgentsupError):
            assert (await town.fetch(url)).startswith("refused: ")
    assert town.paths == ["/"]


@pytest.mark.parametrize(
    "url",
    [
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0x7f.1/",
        "http://017700000001/",
        "http://0177.0.0.1/",
        "http://127.1/",
        "http://0/",
        "http://127.0.0.1./",
        "http://①②⑦.⓪.⓪.①/",
        "http://127。0。0。1/",
        "http://2852039166/latest/meta-data",
        "http://0xa9fea9fe/",
        "http://[::ffff:7f00:1]/",
        "http://[::ffff:0:127.0.0.1]/",
        "http://[64:ff9b::a9fe:a9fe]/",
        "http://[2002:7f00:1::]/",
        "http://[fe80::1%25lo]/",
        "http://127.0.0.1#@example.org/",
        "http://example.org:80@127.0.0.1/",
        "HTTP://127.0.0.1/",
    ],
)
async def test_no_spelling_of_an_inner_address_is_fetched(url: str) -> None:
    """By the system's own resolver, which knows more spellings than one thinks of."""
    with pytest.raises(Refused):
        await web_tool().run(context(Path(), Book()), {"url": url})


async def test_a_name_that_changes_meanwhile_changes_nothing(town: Web) -> None:
    """Rebinding: the address that was judged is the one that is connected to."""
    town.answers["/"] = page("here")
    town.names["example.org"] = [["127.0.0.1"], ["169.254.169.254"]]
    assert "here" in await town.fetch(town.at("/"))
    assert town.asked == ["example.org"]
    with pytest.raises(AgentsupError, match="not on the public network"):
        await town.fetch(town.at("/"))


async def test_one_hidden_address_among_public_ones_is_enough(town: Web) -> None:
    town.names["example.org"] = [["127.0.0.1", "10.0.0.1"]]
    with pytest.raises(AgentsupError, match="not on the public network"):
        await town.fetch(town.at("/"))


async def test_behind_a_proxy_hidden_names_stay_hidden(
    town: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{town.port}")
    town.names["intra.example"] = [["10.0.0.1"]]
    with pytest.raises(AgentsupError, match="not on the public network"):
        await town.fetch(town.at("/", "intra.example"))
    town.answers["/"] = page("by the proxy")
    assert "by the proxy" in await town.fetch(town.at("/"))


async def test_what_is_fetched_is_bounded(town: Web) -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            while True:
                await response.write(b"x" * 65536)
        return response

    async def silent(request: web.Request) -> web.StreamResponse:
        await town.over.wait()
        return web.Response()

    town.answers = {
        "/endless": endless,
        "/silent": silent,
        "/binary": page("x", "application/zip"),
        "/round": moved("/round"),
    }
    assert (await town.fetch(town.at("/endless"))).endswith("[cut at 2097152 bytes]")
    with pytest.raises(TimedOut):
        await town.fetch(town.at("/silent"), timeout_s=0.2)
    with pytest.raises(AgentsupError, match="no text"):
        await town.fetch(town.at("/binary"))
    with pytest.raises(AgentsupError, match="redirections"):
        await town.fetch(town.at("/round"))


async def test_an_address_of_this_machine_is_refused_however_public_it_is(town: Web) -> None:
    assert is_own("127.0.0.1")
    assert not is_own("192.0.2.1")
    with pytest.raises(Refused, match="is this machine"):
        await town.fetch(town.at("/"), is_own=is_own)
    assert town.paths == []


@pytest.mark.parametrize(
    "charset",
    ["punycode", "idna", "unicode_escape", "utf_7", "hex", "zlib", "rot13", "../x", "x" * 500],
)
async def test_a_codec_that_is_no_charset_is_not_obeyed(town: Web, charset: str) -> None:
    async def answer(request: web.Request) -> web.Response:
        text = "caf\u00e9-" * 40_000
        return web.Response(
            body=text.encode(), headers={"Content-Type": f"text/plain; charset={charset}"}
        )

    town.answers["/"] = answer
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert "caf\u00e9-caf\u00e9-" in await town.fetch(town.at("/"))
    assert loop.time() - began < 1.0


async def test_pages_are_read_in_a_pool_of_their_own(town: Web) -> None:
    """What holds its threads up is refused there, and costs nobody else one."""
    town.answers["/"] = page("here")
    free, pool = threading.Event(), BoundedPool("pages", threads=1, queued=1)
    holding = [asyncio.create_task(pool.run(free.wait)) for _ in range(2)]
    await asyncio.sleep(0)
    try:
        with pytest.raises(Overloaded, match="too many pages"):
            await town.fetch(town.at("/"), pool=pool)
    finally:
        free.set()
    assert all(await asyncio.gather(*holding))
    assert "here" in await town.fetch(town.at("/"), pool=pool)


async def test_a_codec_of_python_is_obeyed_where_the_list_lets_it_pass(
    town: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same without the list, for each way in which it breaks."""
    every = {name: name for name in ("unicode_escape", "rot13")}
    monkeypatch.setattr(web_module, "_CHARSETS", {k.replace("_", "-"): v for k, v in every.items()})
    for charset in every:
        with pytest.raises((AssertionError, LookupError)):
            await test_a_codec_that_is_no_charset_is_not_obeyed(town, charset)


@pytest.mark.parametrize(
    "charset", ["UTF-8", "utf_8", "ISO-8859-1", "windows-1252", "Shift_JIS", "gb18030", "KOI8-R"]
)
async def test_a_charset_of_the_web_is_read(town: Web, charset: str) -> None:
    word = {
        "Shift_JIS": "\u65e5\u672c",
        "gb18030": "\u4e2d\u6587",
        "KOI8-R": "\u043c\u0438\u0440",
    }.get(charset, "caf\u00e9")

    async def answer(request: web.Request) -> web.Response:
        headers = {"Content-Type": f"text/html; charset={charset}"}
        return web.Response(body=f"<p>{word}</p>".encode(charset), headers=headers)

    town.answers["/"] = answer
    assert word in await town.fetch(town.at("/"))


def test_every_charset_that_is_obeyed_is_known() -> None:
    for name in set(_CHARSETS.values()):
        assert "x".encode(name).decode(name).endswith("x")


PIECES = ("<", ">", "a", "<br>", "</p", "x>", "\n", "<script", "<svg>", "</script>", " ")


@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join), st.integers(1, 20))
def test_a_page_read_in_steps_is_read_as_in_one(text: str, step: int) -> None:
    whole = web_module._without_tags(web_module._without_hidden(text))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(web_module, "_STEP_CHARS", step)
        assert web_module._without_tags(web_module._without_hidden(text)) == whole


def test_no_step_is_longer_than_the_interpreter_may_stand_still() -> None:
    class Seen(list[int]):
        def sub(self, by: str, text: str) -> str:
            self.append(len(text))
            return text

    for text in ("<>" * 1_000_000, "<b>" * 700_000, "<" * 2_000_000 + ">"):
        seen: Any = Seen()
        assert web_module._replaced(seen, "", text) == text
        # A single tag is one step, however long it is; it is left out at once.
        assert max(seen) <= 128 * 1024 + 3 or text.count(">") == 1
