"""The form of commands: ``--help`` with names instead of types and an example for each, and options
that mean the same everywhere."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from agentsup.cli.connect.client import DaemonClient, listed_now
from agentsup.cli.connect.failure import CommandFailed
from agentsup.cli.connect.locate import DaemonLocation

EXAMPLES: Final[Mapping[str, Sequence[str]]] = {
    "setup": [
        "agentsup setup",
        "agentsup setup --provider ollama --model qwen3:8b --yes",
        "agentsup setup --provider openai --key-file openai.key --model gpt-5-mini",
    ],
    "models list": ["agentsup models list", "agentsup models list mini --agent writer"],
    "models test": ["agentsup models test", "agentsup models test gpt-5-mini"],
    "models set": [
        "agentsup models set gpt-5-mini",
        "agentsup models set qwen3:8b --provider ollama --agent writer",
        "agentsup models set gpt-5 --agent writer --chat telegram:12345",
    ],
    "models chats": ["agentsup models chats", "agentsup models chats --agent writer --json"],
    "init": ["agentsup init", "agentsup --home ./try init"],
    "run": ["agentsup run", "agentsup run --port 8800"],
    "up": ["agentsup up", "agentsup up --no-chat"],
    "status": ["agentsup status", "agentsup status --json"],
    "service install": ["agentsup service install", "agentsup service install --print"],
    "service logs": ["agentsup service logs", "agentsup service logs --no-follow -n 200"],
    "backup": [
        "agentsup backup ~/agentsup-today.tar.gz",
        "agentsup backup",
        "agentsup backup ~/store-today.db",
    ],
    "restore": [
        "agentsup restore ~/agentsup-today.tar.gz --dry-run",
        "agentsup --home ./elsewhere restore ~/agentsup-today.tar.gz",
        "agentsup restore",
    ],
    "upgrade": ["agentsup upgrade", "agentsup upgrade --check"],
    "uninstall": [
        "agentsup uninstall",
        "agentsup uninstall --home-too --backup ~/last.tar.gz --yes",
    ],
    "export agent": [
        "agentsup export agent writer",
        "agentsup export agent writer ~/writer.tar.gz",
    ],
    "export chats": [
        "agentsup export chats chats.md",
        "agentsup export chats --agent writer --format json",
    ],
    "import": [
        "agentsup import writer.agent.tar.gz",
        "agentsup import writer.agent.tar.gz --as poet --apply",
        "agentsup import ~/.openclaw",
        "agentsup import ~/.openclaw --apply",
        "agentsup import --from hermes ~/.hermes",
    ],
    "chat": ["agentsup chat", "agentsup chat writer", "echo hello | agentsup chat"],
    "send": ['agentsup send writer "a haiku"'],
    "logs": ["agentsup logs -f", "agentsup logs writer -n 200"],
    "link": ["agentsup link", "agentsup link anna --base https://agents.home.example"],
    "pair": [
        "agentsup pair",
        "agentsup pair K7QF-2M9D",
        "agentsup pair K7QF-2M9D --role operator --name anna",
    ],
    "route": ['agentsup route "book a train to Graz"'],
    "cost": ["agentsup cost", "agentsup cost writer"],
    "mcp": ["agentsup mcp", "agentsup mcp coder"],
    "help": ["agentsup help", "agentsup help tasks create"],
    "docs": ["agentsup docs", "agentsup docs models"],
    "agents set": [
        "agentsup agents set writer",
        "agentsup agents set writer model gpt-5-mini",
        "agentsup agents set writer model --clear",
    ],
    "agents explain": [
        "agentsup agents explain writer",
        "agentsup agents explain writer --changed",
    ],
    "agents edit": ["agentsup agents edit", "agentsup agents edit writer"],
    "config get": ["agentsup config get --changed", "agentsup config get api.port"],
    "config set": [
        "agentsup config set agent_defaults.user_timezone Europe/Vienna",
        "agentsup config set limits.keep_days 30",
        "agentsup config set limits.keep_days --clear",
    ],
    "agents add": [
        'agentsup agents add poet --description "Writes verse."',
        "agentsup agents add coder --engine claude --set 'tools=[\"*\"]'",
    ],
    "agents remove": ["agentsup agents remove poet"],
    "approvals revoke": ["agentsup approvals revoke 3"],
    "messages reprioritise": ["agentsup messages reprioritise 0smk9h high"],
    "quarantine show": ["agentsup quarantine show telegram.12"],
    "quarantine retry": ["agentsup quarantine retry telegram.12"],
    "quarantine drop": ["agentsup quarantine drop telegram.12"],
    "questions show": ["agentsup questions show 7"],
    "questions answer": ["agentsup questions answer 7 tea"],
    "tasks create": [
        'agentsup tasks create "summarise the papers in inbox/"',
        "agentsup tasks create \"morning report\" --cron '30 8 * * MON-FRI'",
    ],
    "tasks answer": ["agentsup tasks answer 0smk9h tea"],
    "tasks resume": ['agentsup tasks resume 0smk9h "and now the next one"'],
    "trace show": ["agentsup trace show", "agentsup trace show 0smk9h"],
}
"""The examples in the ``--help`` of a command. A command that is not listed shows its own line,
with ``SAMPLES`` as arguments."""

SAMPLES: Final = {"AGENT": "writer", "ID": "0smk9h", "KEY": "bike"}

SECTIONS: Final[Mapping[str, Sequence[str]]] = {
    "Begin": ["setup", "up", "chat", "demo", "init", "docs", "help", "version"],
    "Talk": ["send", "questions", "approvals", "link", "pair", "route"],
    "Work": ["tasks", "messages", "failed", "stop-all"],
    "Agents": ["agents", "config", "models", "roles", "memory", "mcp", "cost"],
    "Daemon": [
        "status",
        "stop",
        "restart",
        "run",
        "service",
        "backup",
        "restore",
        "export",
        "import",
        "upgrade",
        "uninstall",
    ],
    "Trouble": ["doctor", "logs", "trace", "quarantine", "hooks"],
}
"""Commands of ``agentsup`` by what people want."""


_TYPES = re.compile(r" <(\w+)(?: range)?>")
_BOUNDS = re.compile(r"; x>=\d+\]|\[x>=\d+\]|; \d+<=x<=\d+\]|\[\d+<=x<=\d+\]")
OTHERS = "More"
"""The heading of commands that no section names."""


class _Readable:
    """The shared part of the help of a command and of a group."""

    def collect_usage_pieces(self: Any, ctx: Any) -> list[str]:
        pieces = ["[OPTIONS]"]
        for each in self.get_params(ctx):
            if each.param_type_name == "argument" and not each.hidden:
                name = _argument(each)
                pieces.append(name if each.required else f"[{name}]")
        return pieces

    def format_options(self: Any, ctx: Any, formatter: Any) -> None:
        arguments: list[tuple[str, str]] = []
        options: list[tuple[str, str]] = []
        for each in self.get_params(ctx):
            record = each.get_help_record(ctx)
            if record is None:
                continue
            left, right = record[0], record[1].replace("  [required]", "").replace("; required", "")
            if each.param_type_name == "argument":
                arguments.append((_argument(each), right))
            else:
                options.append((_left(left), _BOUNDS.sub(_closing, right)))
        for heading, rows in (("Arguments", arguments), ("Options", options)):
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)


def _argument(parameter: Any) -> str:
    name = (parameter.metavar or parameter.name).strip("[]").upper()
    return f"{name}..." if parameter.nargs == -1 else name


def _left(shown: str) -> str:
    """The names of an option and what it takes, such as ``--lines N``."""
    return _TYPES.sub(lambda found: " N" if found[1] in ("int", "float") else " TEXT", shown)


def _closing(match: re.Match[str]) -> str:
    return "]" if match[0].startswith(";") else ""


class ReadableCommand(_Readable, TyperCommand):
    """A command whose help ends with its examples."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        super().format_epilog(ctx, formatter)
        with formatter.section("Examples"):
            for line in examples_of(ctx.command_path.partition(" ")[2], self):
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


def examples_of(path: str, command: TyperCommand) -> Sequence[str]:
    """Lines that run the command of this path. Raises ``KeyError`` if it needs one of its own."""
    if found := EXAMPLES.get(path):
        return found
    needed = (p for p in command.params if p.param_type_name == "argument" and p.required)
    return (" ".join(["agentsup", path, *(SAMPLES[_argument(each)] for each in needed)]),)


class ReadableGroup(_Readable, TyperGroup):
    """A group of commands that are listed by section, each with its whole first sentence."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and ctx.parent is None and not ctx.resilient_parsing:
            print(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return ["[OPTIONS]", "COMMAND [ARGS]..."]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for heading, names in self._listed(ctx):
            rows = [(name, _sentence(self.commands[name])) for name in names]
            with formatter.section(heading):
                formatter.write_dl(rows)

    def _listed(self, ctx: Any) -> Iterator[tuple[str, list[str]]]:
        shown = [name for name in self.list_commands(ctx) if not self.commands[name].hidden]
        if ctx.parent is not None:
            yield "Commands", shown
            return
        for heading, names in SECTIONS.items():
            yield heading, [name for name in names if name in shown]
        named = {name for names in SECTIONS.values() for name in names}
        if rest := [name for name in shown if name not in named]:
            yield OTHERS, rest


def _sentence(command: Any) -> str:
    """The first sentence of a command's help, on one line, without what follows a semicolon."""
    text = " ".join((command.help or "").split())
    return re.split(r"(?<=\.)\s|;\s", text)[0].removesuffix(".")


AsJson = Annotated[bool, typer.Option("--json", help="One JSON document instead of text.")]


def complete_agent(ctx: typer.Context, incomplete: str) -> list[str]:
    """The agents whose names begin so, for the shell; none if no daemon answers."""
    names = _listed(ctx, "/interagent/agents", "agents")
    return [name for name in names if name.startswith(incomplete)]


def complete_task(ctx: typer.Context, incomplete: str) -> list[str]:
    """The tasks whose ids begin so, for the shell; none if no daemon answers."""
    found = _listed(ctx, "/tasks/list", "tasks")
    return [one["id"] for one in found if one["id"].startswith(incomplete)]


def _listed(ctx: typer.Context, path: str, key: str) -> list[Any]:
    location = DaemonLocation.of(ctx.find_root().params.get("home"))  # no command has begun
    return listed_now(location, path, key, timeout_s=1.0)


AgentName = Annotated[
    str, typer.Argument(metavar="AGENT", help="Its name.", autocompletion=complete_agent)
]
MaybeAgent = Annotated[
    str | None,
    typer.Argument(metavar="[AGENT]", help="Its name.", autocompletion=complete_agent),
]


Limit = Annotated[int, typer.Option("-n", "--limit", min=1, max=500, help="How many at most.")]


def agree(question: str, refusal: str) -> None:
    """Ask at the terminal. Raises ``CommandFailed`` with ``refusal`` for any answer but yes."""
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().casefold() not in ("y", "yes"):
        raise CommandFailed(refusal)


def go_on(*, yes: bool) -> None:
    """Ask whether to go on, if ``yes`` was not given. Raises ``CommandFailed``."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandFailed("nobody can be asked here; give --yes. Nothing was changed")
    agree("Go on?", "Nothing was changed")


def location_of(ctx: typer.Context) -> DaemonLocation:
    """The home or address that this command line is about."""
    location = ctx.find_object(DaemonLocation)
    return location if location is not None else DaemonLocation.of(None)


def home_location(ctx: typer.Context, why: str) -> DaemonLocation:
    """The home that this command line is about. Raises ``CommandFailed`` if only an address is known;
    ``why`` says what a home is needed for."""
    location = location_of(ctx)
    if location.url:
        raise CommandFailed(f"{why}; unset AGENTSUP_URL or give --home")
    return location


def client_of(ctx: typer.Context) -> DaemonClient:
    """A client of the daemon that this command line is about. Raises ``CommandFailed`` if none is
    known."""
    return DaemonClient.to(location_of(ctx))


class _Commands(typer.Typer):
    """Declares commands with our help."""

    def command(self, *args: Any, **options: Any) -> Any:
        return super().command(*args, **{"cls": ReadableCommand, **options})


def group(help_text: str, *, completion: bool = False) -> typer.Typer:
    """A group of commands; alone it prints its help. ``completion``: offer it for the shell."""
    return _Commands(
        cls=ReadableGroup,
        help=help_text,
        no_args_is_help=True,
        rich_markup_mode=None,
        add_completion=completion,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
