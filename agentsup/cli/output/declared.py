"""Commands that send the daemon one request and show its answer: a request and a view, declared.

``@asks(view)`` makes such a command of a function that returns the request; its parameters are those
of the command, its docstring is the help. ``--json`` prints the answer as it came.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import Parameter, Signature, signature
from typing import Any

import typer

from agentsup.cli.connect.client import REQUEST_S
from agentsup.cli.output.options import AsJson, client_of
from agentsup.cli.output.show import Columns, CommandOutput, labelled
from agentsup.kit.terminal import clean

View = Callable[[CommandOutput, Any], None]
"""Shows an answer for a person. It gets its members, and the arguments of the command."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request to the daemon: a GET with ``query``, or a POST if there is a ``body``."""

    path: str
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    timeout_s: float = REQUEST_S

    def sent(self, ctx: typer.Context) -> Any:
        """The answer of the daemon that this command line is about. Raises ``CommandFailed``."""
        client = client_of(ctx)
        if self.body is None:
            return client.get(self.path, self.query, timeout_s=self.timeout_s)
        return client.post(self.path, self.body, timeout_s=self.timeout_s)


_CONTEXT = Parameter("ctx", Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
_AS_JSON = Parameter("as_json", Parameter.POSITIONAL_OR_KEYWORD, default=False, annotation=AsJson)


def read(path: str, **query: Any) -> Request:
    """Read what is at ``path``; what is None in the query is not sent."""
    return Request(path, query)


def submit(path: str, **body: Any) -> Request:
    """Change something."""
    return Request(path, body=body)


def asks(
    view: View | str, group: typer.Typer | None = None, name: str | None = None, **options: Any
) -> Callable[[Callable[..., Request]], Callable[..., None]]:
    """Make a command of a function that returns its request, and add it to ``group``.

    ``view`` shows the answer; a text is a template of it. ``name`` is that of the function if it is
    not given, ``options`` are those of typer.
    """
    show = view if callable(view) else sentence(view)

    def declared(request: Callable[..., Request]) -> Callable[..., None]:
        def command(ctx: typer.Context, as_json: bool = False, **given: Any) -> None:
            answer = request(**given).sent(ctx)
            show(CommandOutput.unless_json(answer, as_json), {**given, **answer})

        taken = (_CONTEXT, *signature(request, eval_str=True).parameters.values(), _AS_JSON)
        command.__signature__ = Signature(taken)  # type: ignore[attr-defined]  # typer reads it
        command.__annotations__ = {each.name: each.annotation for each in taken}
        command.__name__, command.__doc__ = request.__name__, request.__doc__
        if group is not None:
            group.command(name, **options)(command)
        return command

    return declared


def listing(key: str, columns: Columns, empty: str) -> View:
    """A table of the documents in the member ``key``, and on a terminal how the next page is had, if
    the command has pages. ``empty`` is a template for an empty table."""

    def show(screen: CommandOutput, one: Mapping[str, Any]) -> None:
        screen.listing(one[key], columns, empty=empty.format_map(one))
        if "cursor" in one and one.get("next_cursor") and screen.is_terminal:
            screen.say(f"More: --cursor {one['next_cursor']}")

    return show


def record(fields: Columns) -> View:
    """The fields of one document that are not empty, as ``label  value`` lines."""
    return lambda screen, one: screen.facts(labelled(one, fields))


def sentence(template: str) -> View:
    """What came of a change."""
    return lambda screen, one: screen.say(clean(template.format_map(one)))
