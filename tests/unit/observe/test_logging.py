from __future__ import annotations

import asyncio
import io
import json
import logging
import re
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import structlog

from agentsup.kit.log import get_logger
from agentsup.observe import MASK, Redactor
from agentsup.observe import logging as logs
from agentsup.observe.logging import Line, LogSystem, bind, setup_logging
from tests.support.bound import BOUND_S

TOKEN = "987654:AAH-secret/token+value"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Fixture:
    """Sets logging up and reads what came out."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "logs" / "agentsup.log"
        self.redactor = Redactor([TOKEN])
        self.stream = io.StringIO()
        self.system: LogSystem | None = None

    def start(self, stream: io.StringIO | None = None, **settings: Any) -> None:
        self.stream = stream or self.stream
        self.system = setup_logging(
            **{"level": "info", "json": False, "file": self.file, **settings},
            redactor=self.redactor,
            stream=self.stream,
        )

    def end(self) -> None:
        if self.system is not None:
            assert self.system.close()
            self.system = None

    def lines(self) -> list[dict[str, Any]]:
        self.end()
        return [json.loads(line) for line in self.file.read_text().splitlines()]

    def shown(self) -> str:
        self.end()
        return self.stream.getvalue()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Fixture]:
    bench = Fixture(tmp_path)
    yield bench
    bench.end()
    structlog.contextvars.clear_contextvars()
    for name in ("aiohttp.access", "asyncio"):
        logging.getLogger(name).setLevel(logging.NOTSET)


def test_both_kinds_of_loggers_give_the_same_lines(bench: Fixture) -> None:
    bench.start()
    get_logger("agentsup.a").info("turn done", chars=5, tool=["x"])
    logging.getLogger("agentsup.b").warning("%d lost %s", 3, "wakes", extra={"route": "web"})
    first, second = bench.lines()
    assert first.pop("at").endswith("Z")
    assert first == {
        "level": "info",
        "logger": "agentsup.a",
        "event": "turn done",
        "chars": 5,
        "tool": ["x"],
    }
    assert (second["level"], second["logger"]) == ("warning", "agentsup.b")
    assert (second["event"], second["route"]) == ("3 lost wakes", "web")


GOLDEN_JSON = r"""
{"level":"info","logger":"agentsup.a","event":"started"}
{"level":"warning","logger":"agentsup.a","event":"100% of %s","agent":"main","chars":5,"tool":["x"],"who":"Ann \"B\"","gone":null,"rate":0.5}
{"level":"error","logger":"agentsup.a","event":"e","agent":"ben","level_":"low","logger_":"l","name":"n","msg":"m","args":[1]}
{"level":"error","logger":"agentsup.a","event":"it broke","agent":"main","code":7,"exception":"ValueError: why"}
{"level":"critical","logger":"agentsup.a","event":"it broke too","agent":"main","exception":"ValueError: why"}
"""
GOLDEN_PLAIN = r"""
info     started
warning  [main] 100% of %s chars=5 tool=["x"] who="Ann \"B\"" gone=null rate=0.5
error    [ben] e level=low logger=l name=n msg=m args=[1]
error    [main] it broke code=7
ValueError: why
critical [main] it broke too
ValueError: why
"""


@pytest.mark.parametrize("is_json", [True, False])
def test_the_look_of_lines_is_fixed(bench: Fixture, is_json: bool) -> None:
    """People read these lines, and programs their fields: order, names and values."""
    bench.start(Terminal(), json=is_json)
    log = get_logger("agentsup.a")
    log.info("started")
    log.debug("not shown", why="level")
    error = ValueError("why")
    with bind(agent="main"):  # the order of several bound names is not fixed
        log.warning("100% of %s", chars=5, tool=["x"], who='Ann "B"', gone=None, rate=0.5)
        log.error("e", level="low", logger="l", name="n", msg="m", args=(1,), agent="ben")
        try:
            raise error
        except ValueError:
            log.exception("it broke", code=7)
        log.critical("it broke too", exc_info=error.with_traceback(None))
    if is_json:
        shown = []
        for line in bench.lines():
            del line["at"]
            if "exception" in line:
                line["exception"] = line["exception"].splitlines()[-1]
            shown.append(json.dumps(line, separators=(",", ":")))
        assert shown == GOLDEN_JSON.strip().splitlines()
        return
    plain = re.sub(r"(?m)^(Traceback|  ).*\n", "", bench.shown())
    plain = re.sub(r"\x1b\[[0-9;]*m|(?m:^\d\d:\d\d:\d\d )", "", plain)
    assert plain.splitlines() == GOLDEN_PLAIN.strip().splitlines()


def test_json_goes_to_what_is_no_terminal_and_plain_lines_to_one(bench: Fixture) -> None:
    bench.start()
    get_logger("x").info("hello")
    assert json.loads(bench.shown())["event"] == "hello"
    bench.start(Terminal())
    with bind(agent="main", session="s1"):
        get_logger("x").info("hello there", count=2, who="Ann B", ok=True)
    line = bench.shown()
    clock, rest = line.split(" ", 1)
    assert [len(part) for part in clock.split(":")] == [2, 2, 2]
    assert rest == 'info     [main] hello there count=2 who="Ann B" ok=true session=s1\n'
    bench.start(Terminal(), json=True)
    get_logger("x").info("hello")
    assert json.loads(bench.shown())["event"] == "hello"


async def test_bound_names_are_on_both_kinds_of_lines_and_stay_in_their_task(
    bench: Fixture,
) -> None:
    bench.start()

    async def turn(name: str, both: asyncio.Barrier) -> None:
        with bind(agent=name, session=f"s-{name}", message=f"m-{name}", trace=""):
            await both.wait()
            get_logger("x").info("structured")
            logging.getLogger("y").info("standard")
        get_logger("x").info("after", of=name)

    both = asyncio.Barrier(2)
    await asyncio.gather(turn("a", both), turn("b", both))
    lines = bench.lines()
    for name in ("a", "b"):
        mine = [line for line in lines if line.get("agent") == name]
        assert sorted(line["event"] for line in mine) == ["standard", "structured"]
        assert {(line["session"], line["message"]) for line in mine} == {(f"s-{name}", f"m-{name}")}
        assert all("trace" not in line for line in mine)
    assert all("agent" not in line for line in lines if line["event"] == "after")


def test_binds_nest(bench: Fixture) -> None:
    bench.start()
    log = get_logger("x")
    with bind(agent="a", trace="t"):
        with bind(agent="b"):
            log.info("in")
        log.info("out")
    assert [(line["agent"], line["trace"]) for line in bench.lines()] == [("b", "t"), ("a", "t")]


def test_a_token_never_appears(bench: Fixture) -> None:
    bench.start(Terminal(), level="debug")
    log, standard = get_logger("agentsup.x"), logging.getLogger("agentsup.y")
    used = f"using {TOKEN}"
    log.info(used, token=TOKEN, nested={"a": [TOKEN, {TOKEN: (TOKEN,)}]})
    standard.info("using %s", TOKEN, extra={"url": f"https://x/bot{TOKEN}/getMe"})
    standard.info("%(token)s", {"token": TOKEN})
    with bind(agent=TOKEN):
        log.warning("bound")
    try:
        try:
            raise ValueError(f"refused {TOKEN}")
        except ValueError as error:
            raise RuntimeError(f"request failed for {TOKEN!r}") from error
    except RuntimeError as error:
        log.exception("failed", error=error)
        standard.exception("failed: %s", error)
        log.warning("no traceback", errors=[error], data=TOKEN.encode())
    standard.info("stack", stack_info=True)
    standard.info("wrong %d", TOKEN)
    later = "a-secret-learned-later"
    bench.redactor.add(later)
    log.info("long", text="x" * (logs.TEXT_MAX - 5) + TOKEN)
    log.info(later)
    shown, written = bench.shown(), bench.file.read_text()
    assert len(written.splitlines()) == 11
    assert "Traceback" in shown
    assert "The above exception was the direct cause" in shown
    for text in (shown, written):
        assert MASK in text
        assert later not in text
        for start in range(len(TOKEN) - 9):
            assert TOKEN[start : start + 10] not in text


def test_a_line_stays_one_line_and_steers_no_terminal(bench: Fixture) -> None:
    bench.start(Terminal())
    get_logger("x").info("two\nlines \x1b[2J", value="a\nb \x07")
    shown = bench.shown()
    assert shown.count("\n") == 1
    assert "\x1b" not in shown
    assert "\x07" not in shown


def test_facts_can_not_pass_for_the_lines_own(bench: Fixture) -> None:
    bench.start()
    get_logger("x").warning("e", level="info", logger="y", at="never")
    (line,) = bench.lines()
    assert (line["level"], line["logger"]) == ("warning", "x")
    assert (line["level_"], line["logger_"], line["at_"]) == ("info", "y", "never")


def test_a_wrong_format_is_logged_and_not_raised(bench: Fixture) -> None:
    bench.start()
    logging.getLogger("x").info("%d apples", "no number")
    assert "arguments do not fit" in bench.lines()[0]["event"]


def test_long_texts_are_cut(bench: Fixture) -> None:
    bench.start()
    get_logger("x").info("big", body="x" * 1_000_000)
    (line,) = bench.lines()
    assert len(line["body"]) < logs.TEXT_MAX + 100
    assert line["body"].endswith("more characters]")


def test_levels_hold_for_both_kinds_and_noise_is_left_out(bench: Fixture) -> None:
    bench.start(level="INFO")
    get_logger("x").debug("hidden")
    logging.getLogger("x").debug("hidden")
    logging.getLogger("aiohttp.access").info("GET /healthz")
    logging.getLogger("asyncio").info("Using selector")
    logging.getLogger("asyncio").warning("Executing took 2 seconds")
    assert [line["event"] for line in bench.lines()] == ["Executing took 2 seconds"]
    with pytest.raises(ValueError, match="use debug, info"):
        bench.start(level="loud")


@pytest.mark.leaks("errors", reason="one is logged on purpose")
def test_asyncio_errors_are_written(bench: Fixture) -> None:
    bench.start()
    logging.getLogger("asyncio").error("boom")
    assert bench.lines()[0]["logger"] == "asyncio"


def test_warnings_of_python_are_lines(bench: Fixture) -> None:
    import warnings

    bench.start()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn("old thing", DeprecationWarning, stacklevel=1)
    assert "old thing" in bench.lines()[0]["event"]


def test_the_file_is_private_and_rotates_within_its_bounds(bench: Fixture) -> None:
    bench.start(file_bytes=10_000)
    log = get_logger("x")
    for number in range(1_000):
        log.info("line", number=number, filler="x" * 100)
    bench.end()
    files = sorted(bench.file.parent.iterdir())
    assert [file.name for file in files] == [
        "agentsup.log",
        *[f"agentsup.log.{n}" for n in range(1, 6)],
    ]
    for file in files:
        assert file.stat().st_size <= 10_000
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    last = json.loads((bench.file.parent / "agentsup.log").read_text().splitlines()[-1])
    assert last["number"] == 999


class Stuck:
    """A target that takes nothing until it is let go, like a terminal after Ctrl-S."""

    def __init__(self, form: Callable[[Line], str]) -> None:
        self.let_go = threading.Event()
        self.entered = threading.Event()
        self.events: list[str] = []
        self.batches = 0
        self.form = form

    def put(self, texts: Sequence[str]) -> None:
        self.entered.set()
        self.let_go.wait(10)
        self.batches += 1
        self.events.extend(texts)

    def close(self) -> None:
        """Nothing to close."""


def event_of(line: Line) -> str:
    return str(line.facts["event"])


def test_a_stuck_target_holds_nobody_up_and_what_was_dropped_is_said() -> None:
    stuck = Stuck(event_of)
    system = LogSystem([stuck], Redactor(), queue_max=10)
    record = logging.makeLogRecord({"name": "x", "levelno": 20, "levelname": "INFO", "msg": "hi"})
    system.handler.handle(record)
    assert stuck.entered.wait(BOUND_S)
    for _ in range(25):
        system.handler.handle(record)  # would hang here
    assert system.dropped == 15
    assert not system.close(timeout_s=0.05)
    stuck.let_go.set()
    assert system.close()
    assert stuck.events.count("hi") == 11
    assert stuck.events[11] == "15 log lines were dropped: they came too fast"


def test_lines_that_come_together_are_written_together_and_formed_once() -> None:
    formed = []

    def form(line: Line) -> str:
        formed.append(line)
        return event_of(line)

    one, other = Stuck(form), Stuck(form)
    system = LogSystem([one, other], Redactor())
    record = logging.makeLogRecord({"name": "x", "levelno": 20, "levelname": "INFO", "msg": "hi"})
    system.handler.handle(record)
    assert one.entered.wait(BOUND_S)
    for _ in range(50):
        system.handler.handle(record)
    one.let_go.set()
    other.let_go.set()
    assert system.close()
    assert one.events == other.events == ["hi"] * 51
    assert one.batches == other.batches == 2
    assert len(formed) == 51


def test_a_target_that_fails_is_counted_and_quiet(
    bench: Fixture, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.start()
    system = bench.system
    assert system is not None
    bench.stream.close()
    get_logger("x").info("to the file only")
    assert [line["event"] for line in bench.lines()] == ["to the file only"]
    assert system.write_errors == 1
    assert capsys.readouterr().err == ""


def test_a_full_disk_at_the_end_keeps_the_exit_code() -> None:
    """A line that did not fit stays in the file's buffer, and closing the file tries it again."""
    full = setup_logging(
        level="info", json=True, file=Path("/dev/full"), redactor=Redactor(), stream=io.StringIO()
    )
    get_logger("x").info("the last line")
    assert full.close()
    assert full.write_errors == 1


def test_closing_puts_back_what_was_there(bench: Fixture) -> None:
    root = logging.getLogger()
    before = (root.level, list(root.handlers))
    bench.start(level="debug")
    assert root.handlers != before[1]
    bench.end()
    assert (root.level, root.handlers) == before


@pytest.mark.parametrize("stream, colours", [(Terminal(), 1), (io.StringIO(), 0)])
def test_a_traceback_steers_no_terminal(stream: io.StringIO, colours: int) -> None:
    log = setup_logging(
        level="info", json=False, file=None, redactor=Redactor(), stream=stream, plain=True
    )
    try:
        raise RuntimeError("\x1b]0;owned\x07\x9b2J\u202e\u2066 said")
    except RuntimeError:
        logging.getLogger("x").exception("it \x1b[2J failed", extra={"why": ["\x9b\u202e"]})
    log.close()
    text = stream.getvalue()
    assert "said" in text
    assert text.count("\x1b[31merror") == text.count("\x1b[0m") == colours, "our own colour"
    text = text.replace("\x1b[31merror", "").replace("\x1b[0m", "")
    assert [c for c in text if c in "\x1b\x07\x9b\u202e\u2066"] == []
