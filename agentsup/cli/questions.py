"""`agentsup questions …`: what agents ask, with all of a call that waits for approval."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from agentsup.cli.client import segment
from agentsup.cli.failure import Failed
from agentsup.cli.options import AsJson, client_of, group
from agentsup.cli.reads import PAGE
from agentsup.cli.show import Screen, clean, when

questions = group("Questions that wait for a person.")

QuestionId = Annotated[str, typer.Argument(metavar="ID", help="The question's id.")]
Limit = Annotated[int, typer.Option("-n", "--limit", min=1, max=500, help="How many at most.")]


@questions.command("list")
def list_questions(
    ctx: typer.Context,
    state: Annotated[str, typer.Option(help="open, answered, expired or cancelled.")] = "open",
    limit: Limit = PAGE,
    as_json: AsJson = False,
) -> None:
    """Questions in one state, oldest first; calls that wait for approval with all of their words."""
    document = client_of(ctx).get("/questions", {"state": state, "limit": limit})
    screen = Screen()
    if as_json:
        screen.json(document)
        return
    rows = [
        (
            one["id"],
            one["agent"],
            one["state"],
            when(one["deadline_at"]),
            _first_line(one)
            + (f" [{' | '.join(one['options'])}]" if one["options"] else "")
            + (f" → {one['answer']}" if one["answer"] else ""),
        )
        for one in document["questions"]
    ]
    screen.table(
        ("id", "agent", "state", "deadline", "question"), rows, empty=f"No question is {state}."
    )
    for one in document["questions"]:
        if one["call"]:
            screen.say(f"\n{one['id']} is about\n{_call(one)}")


@questions.command()
def show(ctx: typer.Context, question_id: QuestionId, as_json: AsJson = False) -> None:
    """One question, with all of the call that waits for approval."""
    one = client_of(ctx).get(f"/questions/{segment(question_id)}")
    screen = Screen()
    if as_json:
        screen.json(one)
    else:
        screen.say(_whole(one))


@questions.command()
def answer(
    ctx: typer.Context,
    question_id: QuestionId,
    text: Annotated[str, typer.Argument(help="The answer; one of the options where it has any.")],
    args: Annotated[
        str | None,
        typer.Option("--args", help="Arguments (a JSON object) for the call that gets leave."),
    ] = None,
    digest: Annotated[
        str, typer.Option(help="The digest of the call that you have seen, from `show`.")
    ] = "",
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Every command of the tool is meant.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Answer a question, once. On a terminal a long call is shown first."""
    client, path = client_of(ctx), f"/questions/{segment(question_id)}"
    body: dict[str, Any] = {"answer": text, "digest": digest, "confirm": confirm}
    if args is not None:
        try:
            body["args"] = json.loads(args)
        except ValueError as error:
            raise typer.BadParameter(f"no JSON: {error}", param_hint="--args") from None
    if sys.stdin.isatty() and not (digest and confirm):
        body |= _asked(client.get(path), text, body)
    one = client.post(f"{path}/answer", body)
    screen = Screen()
    if as_json:
        screen.json(one)
    else:
        screen.say(f"answered: {clean(one['answer'])}")


def _asked(one: dict[str, Any], text: str, body: dict[str, Any]) -> dict[str, Any]:
    """Show what was not seen, and ask again; what that adds to the answer."""
    if one["state"] != "open" or not one["call"] or text.startswith("deny"):
        return {}
    if one["is_cut"] and not body["digest"]:
        sys.stderr.write(f"{clean(_call(one))}\nIs that call meant? [y/N] ")
        _agree()
    added = {"digest": body["digest"] or one["digest"]}
    if text in ("any", "always") and "any" in one["options"] and not body["confirm"]:
        sys.stderr.write(
            f"Every command of {clean(one['tool'])} would run, whatever it does, without asking, "
            "until it is taken back (`agentsup approvals revoke`). Is that meant? [y/N] "
        )
        _agree()
        added["confirm"] = True
    return added


def _agree() -> None:
    sys.stderr.flush()
    if sys.stdin.readline().strip().casefold() not in ("y", "yes"):
        raise Failed("nothing was answered")


def _first_line(one: dict[str, Any]) -> str:
    return clean(one["text"]).partition("\n")[0] if one["call"] else clean(one["text"])


def _whole(one: dict[str, Any]) -> str:
    facts = f"{one['agent']}, {one['state']}, until {when(one['deadline_at'])}"
    pairs = zip(one["options"], one["labels"], strict=True)
    options = "\n".join(f"  {option}: {label}" for option, label in pairs)
    return "\n".join(filter(None, (facts, _call(one), options)))


def _call(one: dict[str, Any]) -> str:
    digest = f"\ndigest {one['digest']}" if one["digest"] else ""
    return f"{one['whole']}{digest}"
