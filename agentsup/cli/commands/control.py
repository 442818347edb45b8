"""Commands that have no module of their own: ``send``, ``chat``, ``stop-all``, ``logs``,
``doctor``, ``hooks``, ``docs``."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

import agentsup
from agentsup.cli.connect.failure import CommandFailed
from agentsup.cli.output.declared import Request, asks, listing, read, submit
from agentsup.cli.output.options import AgentName, AsJson, MaybeAgent, client_of, location_of
from agentsup.cli.output.show import Columns, CommandOutput, when, wrapped
from agentsup.kit.terminal import clean

SEND_S = 300.0
_COMMAND: Final = re.compile(r"/[a-z_]+(?: .*)?", re.ASCII)
_PACKAGE: Final = Path(agentsup.__file__).parent
_WIDTH: Final = 100
_BLOCK: Final = re.compile(r"\s*(?:$|#|\||>|```|[-*+] |\d+\. )")
"""The beginning of a line that is not joined to the line before: a heading, list, table or code."""


HOOKS: Columns = (
    "phase",
    ("stage", "name"),
    ("on", lambda one: "always" if one["fixed"] else "on" if one["on"] else "off"),
    ("what it does", "about"),
)


@asks(listing("hooks", HOOKS, "There are no stages."))
def hooks() -> Request:
    """The stages that every call of a tool passes, as they are in the running daemon."""
    return read("/hooks")


def chat(
    ctx: typer.Context,
    agent: MaybeAgent = None,
    conversation: Annotated[
        str, typer.Option(help="Its name; each is a chat of its own.")
    ] = "local",
) -> None:
    """Talk to an agent (main, if none is named); reads lines from a pipe too."""
    from agentsup.cli.chat import run_chat

    run_chat(location_of(ctx), agent or "main", conversation)


def send(
    ctx: typer.Context,
    agent: AgentName,
    text: Annotated[str, typer.Argument(help="The message; - reads it from standard input.")],
    wait: Annotated[bool, typer.Option(help="Wait for the answer, or only queue it.")] = True,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait.")] = SEND_S,
    key: Annotated[
        str | None, typer.Option(help="Idempotency key: sent again with it, it counts once.")
    ] = None,
    priority: Annotated[str | None, typer.Option(help="critical, high, normal or low.")] = None,
    new_session: Annotated[bool, typer.Option("--new-session", help="Begin afresh.")] = False,
    as_json: AsJson = False,
) -> None:
    """Send a message to an agent and print its answer."""
    if _COMMAND.fullmatch(text):
        chat_line = location_of(ctx).command(f"chat {agent}")
        raise CommandFailed(
            f"{text.split()[0]} is a command of the chat: `echo '{text}' | {chat_line}` runs it; with "
            "- the text is read from standard input and sent to the agent as it is",
            exit_code=2,
        )
    body: dict[str, Any] = {
        "to": agent,
        "message": sys.stdin.read() if text == "-" else text,
        "new_session": new_session,
    }
    if key is not None:
        body["idempotency_key"] = key
    if priority is not None:
        body["priority"] = priority
    client = client_of(ctx)
    screen = CommandOutput()
    if not wait:
        queued = client.post("/interagent/send_async", body)
        screen.done(queued, queued["message_id"], as_json=as_json)
        return
    from agentsup.cli.commands.send import ask, engine_note

    answer = ask(client, body, timeout)
    if not as_json and (note := engine_note(client, agent)):
        print(clean(note), file=sys.stderr)
    text = clean(answer["text"]) if screen.is_terminal else answer["text"]
    screen.done(answer, text, as_json=as_json)


def _ended(screen: CommandOutput, one: dict[str, Any]) -> None:
    """What a stop has ended, and the schedules that stay."""
    total = one["running"] + one["queued"] + one["parked"]
    if not total and not one["processes"]:
        screen.say("Nothing was running or waiting.")
    else:
        screen.prose(
            f"Stopped {_stopped(one)} of {_counted(one['agents'], 'agent')} in "
            f"{one['elapsed_ms']:.0f} ms."
        )
    if not one["durable"]:
        screen.say("It could not be written to the store: it holds until the daemon ends.")
    for each in one["schedules"]:
        screen.say(f"The schedule of {clean(each['name'])} stays: next {when(each['next_at'])}.")


@asks(_ended)
def stop_all() -> Request:
    """Stop everything that runs, waits or is queued; the agents stay up."""
    return submit("/stop_all")


def _stopped(one: dict[str, Any]) -> str:
    """The counts of what a stop has ended; zero counts are left out."""
    words = {"running": "running", "queued": "queued", "parked": "waiting"}
    counts = {word: one[state] for state, word in words.items() if one[state]}
    parts = []
    if counts:
        by_state = " and ".join(f"{count} {state}" for state, count in counts.items())
        parts.append(f"{by_state} message{'' if sum(counts.values()) == 1 else 's'}")
    if one["processes"]:
        parts.append(_counted(one["processes"], "process", "processes"))
    return " and ".join(parts)


def _counted(count: int, one: str, many: str = "") -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"


def logs(
    ctx: typer.Context,
    agent: MaybeAgent = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on as it grows.")] = False,
    lines: Annotated[int, typer.Option("-n", "--lines", min=0, help="How many.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="The lines as they are stored.")] = False,
) -> None:
    """The latest lines of the log, of one agent or of all."""
    from agentsup.cli.commands.log_lines import follow_log, refuse_unknown, tail_log, text_of

    location = location_of(ctx)
    path = location.home.logs / "agentsup.log"
    screen = CommandOutput()

    def show(line: str) -> None:
        screen.say(line if as_json else text_of(line, plain=screen.plain))

    try:
        if not path.exists():
            raise CommandFailed(f"there is no log at {path}; has a daemon run for this home?")
        found = tail_log(path, lines, agent)
        if agent is not None and not found:
            refuse_unknown(location.home, agent)
        for line in found:
            show(line)
        if follow:
            follow_log(path, agent, show)
    except KeyboardInterrupt:
        return
    except OSError as error:
        raise CommandFailed(
            f"the log {error.filename or path} can't be read ({error.strerror}); run this as the user "
            "of the daemon"
        ) from None


def doctor(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Check this machine and the home; exit code 1 where something must be mended."""
    from dataclasses import asdict

    from agentsup.cli.doctor.check import FAIL
    from agentsup.cli.doctor.checks import examine

    found = examine(location_of(ctx))
    failed = any(one.result == FAIL for one in found)
    document = {"ok": not failed, "checks": [*map(asdict, found)]}
    screen = CommandOutput.unless_json(document, as_json, code=1 if failed else 0)
    colours = {"ok": "green", "warn": "yellow", "fail": "red"}
    for one in found:
        text = f"{one.name}: {one.text}" + (f" → {one.advice}" if one.advice else "")
        first, *rest = wrapped(clean(text), screen.width and screen.width - 6)
        mark = screen.paint(f"{one.result:<4}", colours[one.result])
        screen.say("\n".join([f"{mark}  {first}", *(f"      {line}" for line in rest)]))
    if failed:
        raise typer.Exit(1)


def docs(
    page: Annotated[
        str | None, typer.Argument(metavar="PAGE", help="Its name; without it, the list of pages.")
    ] = None,
) -> None:
    """Read the documentation."""
    from agentsup.cli.chat.markdown import MarkdownStream

    screen, pages = CommandOutput(), _pages()
    if page is None:
        rows = [{"page": name, "title": _title(path)} for name, path in pages.items()]
        screen.listing(rows, ("page", "title"), empty="")
        return
    name = page.removeprefix("docs/").removesuffix(".md")
    if name not in pages:
        raise CommandFailed(f"there is no page {name!r}; `agentsup docs` lists them", exit_code=2)
    text = pages[name].read_text(encoding="utf-8")
    if not screen.is_terminal:
        print(text, end="")
        return
    shown = MarkdownStream("", lambda: min(_WIDTH, screen.width or _WIDTH))
    print("\n".join([*shown.add(_joined(text)), *shown.end()]))


def _pages() -> dict[str, Path]:
    """The pages by name. In a wheel they are in the package, in a clone beside it."""
    folder = next(
        (each for each in (_PACKAGE / "docs", _PACKAGE.parent / "docs") if each.is_dir()), None
    )
    if folder is None:
        raise CommandFailed("this installation has no documentation: the folder docs is missing")
    found = [*folder.glob("*.md"), *folder.glob("examples/*.md"), *folder.glob("reference/*.md")]
    named = {str(path.relative_to(folder).with_suffix("")): path for path in sorted(found)}
    return {"index": named.pop("index"), **named} if "index" in named else named


def _title(path: Path) -> str:
    found = re.search(r"^# (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else path.stem


def _joined(text: str) -> str:
    """The page with each paragraph joined to one line, so that the terminal's width can break it."""
    lines: list[str] = []
    is_code = may_go_on = False
    for line in text.splitlines():
        is_fence = line.lstrip().startswith("```")
        if may_go_on and not is_code and not _BLOCK.match(line):
            lines[-1] += f" {line.strip()}"
            continue
        lines.append(line)
        is_code = is_code != is_fence
        may_go_on = bool(line.strip()) and not is_fence and line.lstrip()[0] not in "#|"
    return "\n".join(lines)
