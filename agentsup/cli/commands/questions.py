"""``agentsup questions …`` and ``approvals …``: what agents ask, with all of a call that waits for
approval, and the grants."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from agentsup.cli.connect.client import DaemonClient, segment
from agentsup.cli.connect.failure import CommandFailed
from agentsup.cli.output.declared import Request, asks, listing, read, submit
from agentsup.cli.output.options import AsJson, Limit, agree, client_of, group
from agentsup.cli.output.reads import PAGE
from agentsup.cli.output.show import Columns, CommandOutput, at, when
from agentsup.kit.terminal import clean

questions = group("Questions that wait for a person.")

QuestionId = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="The question's id, or an ending of it that no other open one has."
    ),
]
_NOTHING = "nothing was answered"
_PATTERN = "pattern:"
_ENDS = ("run", "today", "30d", "revoked")
LEAST_ID_CHARS = 4
"""An ending of an id that long is enough to name a question."""


def _line(one: dict[str, Any]) -> str:
    """A question with its options and its answer, of a call the first line."""
    text = clean(one["text"]).partition("\n")[0] if one["call"] else clean(one["text"])
    options = f" [{' | '.join(one['options'])}]" if one["options"] else ""
    return text + options + (f" → {one['answer']}" if one["answer"] else "")


def _whole(one: dict[str, Any]) -> str:
    facts = f"{one['agent']}, {one['state']}, until {when(one['deadline_at'])}"
    pairs = zip(one["options"], one["labels"], strict=True)
    options = "\n".join(f"  {option}: {label}" for option, label in pairs)
    return "\n".join(filter(None, (facts, _call(one), options)))


def _call(one: dict[str, Any]) -> str:
    digest = f"\ndigest {one['digest']}" if one["digest"] else ""
    return f"{one['whole']}{digest}"


COLUMNS: Columns = ("id", "agent", "state", ("deadline", at("deadline_at")), ("question", _line))
QUESTIONS = listing("questions", COLUMNS, "No question is {state}.")


def _with_calls(screen: CommandOutput, one: dict[str, Any]) -> None:
    """The questions, and below them all of each call that waits for approval."""
    QUESTIONS(screen, one)
    for asked in one["questions"]:
        if asked["call"]:
            screen.say(f"\n{asked['id']} is about\n{_call(asked)}")


@asks(_with_calls, questions, "list")
def list_questions(
    state: Annotated[str, typer.Option(help="open, answered, expired or cancelled.")] = "open",
    limit: Limit = PAGE,
) -> Request:
    """Questions in one state, oldest first; calls that wait for approval with all of their words."""
    return read("/questions", state=state, limit=limit)


@questions.command()
def show(ctx: typer.Context, question_id: QuestionId, as_json: AsJson = False) -> None:
    """One question, with all of the call that waits for approval."""
    client = client_of(ctx)
    one = client.get(f"/questions/{segment(_whole_id(client, question_id))}")
    CommandOutput().done(one, _whole(one), as_json=as_json)


@questions.command()
def answer(
    ctx: typer.Context,
    question_id: QuestionId,
    text: Annotated[str, typer.Argument(help="The answer; one of the options where it has any.")],
    args: Annotated[
        str | None,
        typer.Option("--args", help="Arguments (a JSON object) for the approved call."),
    ] = None,
    digest: Annotated[
        str, typer.Option(help="The digest of the call that you have seen, from `show`.")
    ] = "",
    until: Annotated[
        str, typer.Option(help="When a pattern ends: run, today, 30d or revoked.")
    ] = "",
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Every command of the tool is meant.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Answer a question, once. On a terminal a long call is shown first."""
    client = client_of(ctx)
    path = f"/questions/{segment(_whole_id(client, question_id))}"
    text = _ended(text, until)
    body: dict[str, Any] = {"answer": text, "digest": digest, "confirm": confirm}
    if args is not None:
        try:
            body["args"] = json.loads(args)
        except ValueError as error:
            raise typer.BadParameter(f"no JSON: {error}", param_hint="--args") from None
    if sys.stdin.isatty() and not (digest and confirm):
        body |= _asked(client.get(path), text, body)
    one = client.post(f"{path}/answer", body)
    CommandOutput().done(one, f"answered: {clean(one['answer'])}", as_json=as_json)


def _ended(text: str, until: str) -> str:
    """The answer with the end of its pattern; without one it holds until it is revoked."""
    if not until:
        return text
    if until not in _ENDS:
        raise typer.BadParameter(f"one of {', '.join(_ENDS)}", param_hint="--until")
    if not text.startswith(_PATTERN):
        raise typer.BadParameter(f"only an answer {_PATTERN}… has an end", param_hint="--until")
    return f"{_PATTERN}{until}:{text.removeprefix(_PATTERN)}"


def _whole_id(client: DaemonClient, given: str) -> str:
    """The id of the only open question whose id ends with ``given``; a whole id as it is. Raises
    ``CommandFailed``."""
    if given.startswith("q_") or len(given) < LEAST_ID_CHARS:
        return given
    listed = client.get("/questions", {"state": "open", "limit": 500})["questions"]
    found = [one["id"] for one in listed if one["id"].endswith(given.casefold())]
    if len(found) > 1:
        raise CommandFailed(f"several questions end with {given}: {', '.join(found)}")
    return found[0] if found else given


def _asked(one: dict[str, Any], text: str, body: dict[str, Any]) -> dict[str, Any]:
    """Show a call that was not seen, and ask again; returns what that adds to the body."""
    if one["state"] != "open" or not one["call"] or text.startswith("deny"):
        return {}
    if one["is_cut"] and not body["digest"]:
        agree(f"{clean(_call(one))}\nIs that call meant?", _NOTHING)
    added = {"digest": body["digest"] or one["digest"]}
    if text in ("any", "always") and "any" in one["options"] and not body["confirm"]:
        agree(
            f"Every command of {clean(one['tool'])} would run, whatever it does, without asking, "
            "until it is taken back (`agentsup approvals revoke`). Is that meant?",
            _NOTHING,
        )
        added["confirm"] = True
    return added


approvals = group("Grants that people gave for dangerous calls.")

_SCOPES = {"run": "its run", "always": "until revoked"}


GRANTS: Columns = (
    "agent",
    ("tool", lambda one: ": ".join(filter(None, (one["tool"], one["pattern"])))),
    ("for", lambda one: when(one["until_at"]) if one["until_at"] else _SCOPES[one["scope"]]),
    (
        "used",
        lambda one: f"{one['uses']}×, {when(one['last_used_at'])}" if one["uses"] else "never",
    ),
    ("given by", "granted_by"),
    ("given", at("granted_at")),
    "id",
)
_NONE = "Nothing is pre-approved; you are asked before every dangerous call."


@asks(listing("approvals", GRANTS, _NONE), approvals, "list")
def list_(
    agent: Annotated[str | None, typer.Option("--agent", help="Only of this agent.")] = None,
) -> Request:
    """The grants in force, newest first."""
    return read("/approvals", agent=agent)


@asks("{approval[id]} is taken back", approvals)
def revoke(
    grant_id: Annotated[str, typer.Argument(metavar="ID", help="The id shown by `list`.")],
) -> Request:
    """Revoke a grant; the tool is asked about again."""
    return submit("/approvals/revoke", id=grant_id)
