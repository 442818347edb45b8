"""agents.json: from bytes to checked entries, or to findings with line, column and field.

A file with any error gives no entries at all, so a half-saved file can't remove agents. The
standard library's decoder parses; positions are looked up only for findings. Serves promise P4.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from pydantic import ValidationError

from agentsup.config.entry import (
    AgentEntry,
    McpServerBlock,
    expand_shorthands,
    known_keys,
    without_nulls,
    wrong_shape,
)
from agentsup.config.findings import (
    ConfigFinding,
    KeyPath,
    Locate,
    Report,
    did_you_mean,
    explain_invalid,
    raise_errors,
    refuse_file,
)
from agentsup.config.foreign import OTHERS_WORDS, foreign_form, is_list_of_servers
from agentsup.config.mcp import MISPLACED, server_problems
from agentsup.config.positions import JsonPositions, LineIndex
from agentsup.config.sygen import Translated, translate
from agentsup.model.agent import MAIN
from agentsup.model.name import name_problem

MAX_BYTES = 1024 * 1024
"""A larger file is refused without parsing."""

_TOP_KEYS = ("$schema", "agents")
_ESCAPE = re.compile(
    r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|(?P<bad>\\u(?:0000|[dD][89a-fA-F]..))|\\.", re.DOTALL
)
"""A surrogate pair, an escape that is no character, or any other one."""


@dataclass(frozen=True, slots=True)
class CheckedValues:
    """The checked values of one layer for an agent, in our keys (nulls dropped)."""

    values: Mapping[str, Any] = field(repr=False)  # may hold secrets in clear
    locate: Locate
    """Returns line and column of a key path of ``values``."""


@dataclass(frozen=True, slots=True)
class DeclaredAgent(CheckedValues):
    """One entry of agents.json."""

    name: str


@dataclass(frozen=True, slots=True)
class AgentsFile:
    """A file without errors. ``warnings`` are reported; the entries are in file order."""

    entries: tuple[DeclaredAgent, ...] = ()
    warnings: tuple[ConfigFinding, ...] = ()


def parse_agents(data: bytes, path: str = "agents.json") -> AgentsFile:
    """Parse the content of agents.json; ``path`` names the file in findings.

    Raises ``ConfigErrors`` with every finding; then nothing of the file may be applied.
    """
    text = decode(data, path)
    document = _loads(text, path)
    report = Report(path, JsonPositions(text).locate)
    listed, at = _entries(document, report)
    entries = tuple(_declared(listed, at, report))
    raise_errors(report.findings)
    return AgentsFile(entries, report.findings)


def decode(data: bytes, path: str) -> str:
    """Decode a configuration file: UTF-8, a byte order mark allowed, at most ``MAX_BYTES``.

    Raises ``ConfigErrors``.
    """
    if len(data) > MAX_BYTES:
        refuse_file(path, f"the file is larger than {MAX_BYTES:,} bytes")
    body = data.removeprefix(b"\xef\xbb\xbf")
    if body.startswith((b"\xff\xfe", b"\xfe\xff")):
        refuse_file(path, "the file is UTF-16", hint="save it as UTF-8")
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        before = body[: error.start].decode("utf-8", "replace")
        position = LineIndex(before).position(len(before))
        refuse_file(path, "this byte is not UTF-8 text", position, hint="save the file as UTF-8")


class _Suspicion:
    """Notes, while the decoder runs, which problems must be searched again to get positions."""

    def __init__(self) -> None:
        self.duplicate = False
        self.not_finite = False

    def pairs(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        self.duplicate |= len(made) != len(pairs)
        return made

    def number(self, text: str) -> float:
        value = float(text)
        self.not_finite |= not math.isfinite(value)
        return value


def _loads(text: str, path: str) -> Any:
    """Parse JSON; refuse what the standard decoder accepts: duplicate keys, NaN, bad escapes."""

    def refuse(message: str, offset: int, hint: str | None = None) -> NoReturn:
        refuse_file(path, message, LineIndex(text).position(offset), hint)

    if not text.strip():
        refuse("the file is empty", 0, "a file without agents holds []")
    suspicion = _Suspicion()
    try:
        document = json.loads(
            text,
            object_pairs_hook=suspicion.pairs,
            parse_float=suspicion.number,
            parse_constant=suspicion.number,
        )
    except json.JSONDecodeError as error:
        message, hint = _explain_syntax(error)
        refuse(message, error.pos, hint)
    except RecursionError:
        refuse("lists and objects are nested too deep", _deepest(text))
    except ValueError:
        # The decoder refuses numbers of some thousand digits or more without a position.
        refuse("this number has too many digits", _first(r"[0-9]{1000,}", text))
    if suspicion.duplicate:
        positions = JsonPositions(text)
        report = Report(path, positions.locate)
        for where, position in positions.duplicate_keys():
            report.error(where, f"the key {where[-1]!r} is here twice", at=position)
        raise_errors(report.findings)
    if suspicion.not_finite:
        at = _first(r"-?(?:Infinity|NaN)|[0-9.]+[eE][+0-9]+", text)
        refuse("this is not a finite number", at)
    # The decoder accepts half of a surrogate pair and NUL, but such a text can't be stored or sent.
    for escape in _ESCAPE.finditer(text) if "\\u" in text else ():
        if escape["bad"]:
            refuse("this escape is not a character", escape.start(), "write the character itself")
    return document


def _first(pattern: str, text: str) -> int:
    match = re.search(pattern, text)
    return match.start() if match else 0


def _explain_syntax(error: json.JSONDecodeError) -> tuple[str, str | None]:
    """A text about the error in the JSON, and what was probably meant."""
    text, at = error.doc, error.pos
    rest, before = text[at:].lstrip(), text[:at].rstrip()
    if not rest or "Unterminated string" in error.msg:
        return "the file ends in the middle", "it looks half-saved, or a bracket is missing"
    if "Invalid control character" in error.msg:
        return "a text goes over the end of its line", "close the quote, or write \\n"
    if rest.startswith(("//", "/*", "#")):
        return "JSON has no comments", "remove the comment"
    if before.endswith(",") and rest[0] in "]}":
        return f"there is a comma before {rest[0]!r}", "remove the comma"
    if rest[0] == "'" or rest[0] in "“”‘’":
        return "this is not a quote that JSON knows", 'use "'
    if rest.startswith(("True", "False", "None")):
        return f"{rest[:5].strip()} is not JSON", "write true, false or null"
    if "delimiter" in error.msg and rest[0] in '"{[':
        return "a comma or colon is missing before this", None
    if "Extra data" in error.msg:
        return "something follows after the end of the document", "keep one list or one object"
    if "property name" in error.msg:
        return "a key in double quotes is expected here", None
    return f"this is not JSON: {error.msg[:1].lower()}{error.msg[1:]}", None


def _deepest(text: str) -> int:
    """The offset at which brackets are nested deeper than in any sensible file."""
    depth = 0
    for match in re.finditer(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', text, re.DOTALL):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(match.group()[:1], 0)
        if depth > 100:
            return match.start()
    return 0


def _entries(document: Any, report: Report) -> tuple[list[Any], KeyPath]:
    """The list of entries and its key path: the document itself, or its ``agents``."""
    if isinstance(document, list):
        if is_list_of_servers(document) and (form := foreign_form({"mcpServers": {}})):
            report.error((), *form)
            return [], ()
        return document, ()
    if not isinstance(document, dict):
        report.error((), wrong_shape(document, "a list of agents, or an object with agents"))
        return [], ()
    if not isinstance(document.get("agents"), list) and (form := foreign_form(document)):
        report.error(("agents",) if "agents" in document else (), *form)
        return [], ()
    for key in document:
        if key not in _TOP_KEYS and key.startswith(("_", "//")):
            report.warning((key,), f"{key[:60]} has no effect here")
        elif key not in _TOP_KEYS:
            hint = did_you_mean(key, _TOP_KEYS)
            if hint is None and key in AgentEntry.model_fields:
                hint = "put a single agent in a list, too: [{...}]"
            report.error((key,), f"unknown key {key[:60]!r}", hint)
    if not isinstance(document.get("$schema", ""), str):
        report.error(("$schema",), wrong_shape(document["$schema"], "a text"))
    if "agents" not in document:
        report.error((), "the key 'agents' is missing")
        return [], ()
    if not isinstance(document["agents"], list):
        report.error(("agents",), wrong_shape(document["agents"], "a list of agents"))
        return [], ()
    return document["agents"], ("agents",)


def _declared(listed: list[Any], at: KeyPath, report: Report) -> Iterator[DeclaredAgent]:
    """The entries that are objects with a name; what is wrong with any of them is a finding."""
    names: dict[str, KeyPath] = {}
    for index, one in enumerate(listed):
        value, where = one, (*at, index)
        if report.is_full:
            return
        if not isinstance(value, dict):
            report.error(where, wrong_shape(value, "an object"))
            continue
        value = _without_id(value, where, report)
        entry = check_values(value, where, report, has_name=True)
        if isinstance(name := value.get("name"), str):
            _check_name(name, where, names, report)
            yield DeclaredAgent(entry.values, entry.locate, name)


def _without_id(value: dict[str, Any], at: KeyPath, report: Report) -> dict[str, Any]:
    """The entry without the ``id`` that others have beside a name for people; says which is which."""
    theirs, name = value.get("id"), value.get("name")
    if not isinstance(theirs, str):
        return value
    if isinstance(name, str) and name_problem(name) is None:
        report.warning((*at, "id"), "id has no effect here, as an agent is known by its name")
    elif name_problem(theirs) is None:
        problem = "an agent is known by its name here, and has a nickname that people read"
        hint = f'write "name": "{theirs}", and the other name as "nickname"'
        report.error((*at, "id"), problem, hint)
    else:
        return value
    return {key: each for key, each in value.items() if key != "id"}


def _check_name(name: str, at: KeyPath, names: dict[str, KeyPath], report: Report) -> None:
    """Check a name against the others, ignoring case: people type names that way in chat."""
    fold = name.casefold()
    if fold in names:
        line, _ = report.locate(names[fold])
        report.error((*at, "name"), f"the name {name[:64]!r} is taken by the entry in line {line}")
    names.setdefault(fold, (*at, "name"))
    if fold == MAIN and name != MAIN:
        report.error((*at, "name"), "the main agent is called 'main'", "write it in lower case")


def _switch_off_unusable(entry: Translated, at: KeyPath, report: Report) -> None:
    """Leave out each server of another program's block that can't be used, and say why.

    Unknown keys stay errors: they may be ours, misspelt.
    """
    servers = entry.values.get("mcp")
    if not isinstance(servers, dict):
        return
    for name, server in servers.items():
        problems: list[tuple[KeyPath, str, str | None]] = []
        found = list(server_problems(name, server)) if isinstance(server, dict) else []
        for where, text, hint, _ in found:
            if where[-1] in MISPLACED:
                del server[where[-1]]
                report.warning((*at, *entry.written_at(where)), f"{text}: it has no effect", hint)
            else:
                problems.append((where, text, hint))
        try:
            McpServerBlock.model_validate(server)
        except ValidationError as error:
            for each in error.errors(include_url=False, include_input=True):
                if each["type"] != "extra_forbidden":
                    where = ("mcp", name, *each["loc"])
                    problems.append((where, *explain_invalid({**each, "loc": where}, ())))
        for where, text, hint in problems:
            servers[name] = {"enabled": False}
            left_out = f"{text}, so this server is left out"
            report.warning((*at, *entry.written_at(where)), left_out, hint)


def check_values(
    value: dict[str, Any], at: KeyPath, report: Report, *, has_name: bool = False
) -> CheckedValues:
    """Check the values of one layer for an agent; findings go to ``report``, the report of its
    document, in which the object is at the key path ``at``."""
    translated = translate(without_nulls(value), at, report)
    for key in translated.values.keys() & OTHERS_WORDS.keys():
        del translated.values[key]
        report.error((*at, key), f"unknown key {key!r}", OTHERS_WORDS[key])
    expand_shorthands(translated.values)
    if translated.written_at(("mcp",)) != ("mcp",):
        _switch_off_unusable(translated, at, report)
    try:
        AgentEntry.model_validate(
            translated.values if has_name else {**translated.values, "name": "x"}
        )
    except ValidationError as error:
        report.invalid(
            error.errors(include_url=False, include_input=True),
            known=known_keys,
            key_path_of=lambda loc: (*at, *translated.written_at(loc)),
        )
    if value.get("name") == MAIN and value.get("enabled") is False:
        report.error(
            (*at, "enabled"),
            "the main agent can't be disabled",
            "remove the key; other agents can be disabled",
        )
    return CheckedValues(
        translated.values, lambda where: report.locate((*at, *translated.written_at(where)))
    )
