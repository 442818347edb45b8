"""The form of ``--help``: groups of commands, names instead of types, and an example for each
command."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from typer.core import TyperCommand, TyperGroup

from agentsup.cli.output.examples import EXAMPLES, SECTIONS

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
        if examples := EXAMPLES.get(ctx.command_path.partition(" ")[2]):
            with formatter.section("Examples"):
                for line in examples:
                    formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


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
