"""agents.json: from bytes to checked entries, or to findings with line, column and field.

A file with any error gives no entries at all, so a half-saved file can't remove agents. Parsing is
done by the standard library's decoder; positions are looked up only when there is something to
tell. Serves promise P4.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from pydantic import ValidationError

from agentsup.config.entry import Entry, expand_shorthands, known_keys, without_nulls, wrong_shape
from agentsup.config.findings import (
    Finding,
    KeyPath,
    Locate,
    Report,
    Severity,
    did_you_mean,
    raise_errors,
)
from agentsup.config.positions import JsonPlaces, LineIndex
from agentsup.config.sygen import ENTRY_KEYS, translate
from agentsup.model.agent import MAIN
from agentsup.model.errors import ConfigErrors

MAX_BYTES = 1024 * 1024
"""A larger file is refused unread."""

_TOP_KEYS = ("$schema", "agents")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class DeclaredAgent:
    """One entry: its name, its values in our keys (nulls dropped), and its place in the file."""

    name: str
    values: Mapping[str, Any] = field(repr=False)  # may hold secrets in clear
    locate: Locate
    """Line and column of a key path of `values`."""


@dataclass(frozen=True, slots=True)
class AgentsFile:
    """A file without errors. `warnings` are to be told; the entries stand in file order."""

    entries: tuple[DeclaredAgent, ...] = ()
    warnings: tuple[Finding, ...] = ()


def parse_agents(data: bytes, path: str = "agents.json") -> AgentsFile:
    """Read the content of agents.json; `path` names the file in findings.

    Raises `ConfigErrors` with every finding; then nothing of the file is to be applied.
    """
    text = decode(data, path)
    document = _loads(text, path)
    report = Report(path, JsonPlaces(text).locate)
    listed, at = _entries(document, report)
    raw = _checked_shapes(listed, at, report)
    entries = _declared(raw, text, report)
    raise_errors(report.findings)
    return AgentsFile(entries, report.findings)


def decode(data: bytes, path: str) -> str:
    """Text of a configuration file: UTF-8, a byte order mark tolerated, at most `MAX_BYTES`.

    Raises `ConfigErrors`.
    """
    if len(data) > MAX_BYTES:
        _fail(path, f"the file is larger than {MAX_BYTES:,} bytes", (1, 1))
    body = data.removeprefix(b"\xef\xbb\xbf")
    if body.startswith((b"\xff\xfe", b"\xfe\xff")):
        _fail(path, "the file is UTF-16", (1, 1), hint="save it as UTF-8")
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        before = body[: error.start].decode("utf-8", "replace")
        place = LineIndex(before).place(len(before))
        _fail(path, "this byte is not UTF-8 text", place, hint="save the file as UTF-8")


def _fail(path: str, message: str, place: tuple[int, int], hint: str | None = None) -> NoReturn:
    found = Finding(Severity.ERROR, message, path, *place, "(file)", hint)
    raise ConfigErrors((found.as_error(),))


class _Suspicion:
    """Notes, while the decoder runs, what needs a second look with positions."""

    def __init__(self) -> None:
        self.duplicate = False
        self.not_finite = False

    def pairs(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        self.duplicate |= len(made) != len(pairs)
        return made

    def number(self, text: str) -> float:
        value = float(text)
        self.not_finite |= value in {float("inf"), float("-inf")}
        return value

    def constant(self, text: str) -> float:
        self.not_finite = True
        return 0.0


def _loads(text: str, path: str) -> Any:
    """Parse JSON, refusing what the standard decoder lets pass: doubled keys, NaN, bad escapes."""
    if not text.strip():
        _fail(path, "the file is empty", (1, 1), hint="a file without agents holds []")
    suspicion = _Suspicion()
    try:
        document = json.loads(
            text,
            object_pairs_hook=suspicion.pairs,
            parse_float=suspicion.number,
            parse_constant=suspicion.constant,
        )
    except json.JSONDecodeError as error:
        message, hint = _explain_syntax(error)
        _fail(path, message, LineIndex(text).place(error.pos), hint=hint)
    except RecursionError:
        _fail(path, "lists and objects are nested too deep", _deepest(text))
    except ValueError:
        # The decoder refuses numbers of more than some thousand digits without saying where.
        match = re.search(r"[0-9]{1000,}", text)
        place = LineIndex(text).place(match.start() if match else 0)
        _fail(path, "this number has too many digits", place)
    if suspicion.duplicate:
        report = Report(path, JsonPlaces(text).locate)
        for where, (line, column) in JsonPlaces(text).duplicate_keys():
            report.error_at(where, line, column, f"the key {where[-1]!r} stands here twice")
        raise_errors(report.findings)
    if suspicion.not_finite:
        match = re.search(r"-?(?:Infinity|NaN)|[0-9.]+[eE][+0-9]+", text)
        place = LineIndex(text).place(match.start() if match else 0)
        _fail(path, "this is not a finite number", place)
    bad_escape = _bad_escape(text) if "\\u" in text else None
    if bad_escape is not None:
        place = LineIndex(text).place(bad_escape)
        _fail(path, "this escape is not a character", place, hint="write the character itself")
    return document


def _bad_escape(text: str) -> int | None:
    """Offset of an escape that is no character: NUL, or half of a surrogate pair.

    The decoder accepts these, but such a text can be neither stored nor sent.
    """
    high: re.Match[str] | None = None
    for match in _ESCAPE.finditer(text):
        code = int(match[1], 16) if match[1] else None
        is_low = code is not None and 0xDC00 <= code < 0xE000
        follows = high is not None and high.end() == match.start()
        if high is not None and not (is_low and follows):
            return high.start()
        if code == 0 or (is_low and high is None):
            return match.start()
        high = match if code is not None and 0xD800 <= code < 0xDC00 else None
    return high.start() if high is not None else None


def _explain_syntax(error: json.JSONDecodeError) -> tuple[str, str | None]:
    """What JSON didn't like, with what was probably meant."""
    text, at = error.doc, error.pos
    rest, before = text[at:].lstrip(), text[:at].rstrip()
    if not rest or "Unterminated string" in error.msg:
        return "the file ends in the middle", "it looks half-saved, or a bracket is missing"
    if "Invalid control character" in error.msg:
        return "a text goes over the end of its line", "close the quote, or write \\n"
    if rest.startswith(("//", "/*", "#")):
        return "JSON has no comments", "remove the comment"
    if before.endswith(",") and rest[0] in "]}":
        return f"a comma stands before {rest[0]!r}", "remove the comma"
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


def _deepest(text: str) -> tuple[int, int]:
    """Where brackets are nested deeper than any sensible file."""
    depth = 0
    for match in re.finditer(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', text, re.DOTALL):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(match.group()[:1], 0)
        if depth > 100:
            return LineIndex(text).place(match.start())
    return (1, 1)


def _entries(document: Any, report: Report) -> tuple[list[Any], KeyPath]:
    """The list of entries and where it stands: the document itself, or its `agents`."""
    if isinstance(document, list):
        return document, ()
    if not isinstance(document, dict):
        report.error((), wrong_shape(document, "a list of agents, or an object with agents"))
        return [], ()
    for key in document:
        if key not in _TOP_KEYS:
            hint = did_you_mean(key, _TOP_KEYS)
            if hint is None and key in Entry.model_fields:
                hint = "one agent stands in a list: [{...}]"
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


def _checked_shapes(
    listed: list[Any], at: KeyPath, report: Report
) -> list[tuple[KeyPath, dict[str, Any]]]:
    """The entries that are objects, each with its place; the others are findings."""
    kept: list[tuple[KeyPath, dict[str, Any]]] = []
    for index, value in enumerate(listed):
        if isinstance(value, dict):
            kept.append(((*at, index), value))
        else:
            report.error((*at, index), wrong_shape(value, "an object"))
        if report.is_full:
            break
    return kept


def _declared(
    raw: list[tuple[KeyPath, dict[str, Any]]], text: str, report: Report
) -> tuple[DeclaredAgent, ...]:
    places = JsonPlaces(text)
    declared: list[DeclaredAgent] = []
    names: dict[str, KeyPath] = {}
    for at, value in raw:
        if report.is_full:
            break
        name = value.get("name")
        entry = check_values(value, at, report, places.locate, has_name=True)
        if isinstance(name, str):
            _check_name(name, at, names, report)
            declared.append(DeclaredAgent(name, entry.values, entry.locate))
    return tuple(declared)


def _check_name(name: str, at: KeyPath, names: dict[str, KeyPath], report: Report) -> None:
    """Names are compared without case: people type them that way in chat."""
    fold = name.casefold()
    if fold in names:
        line, _ = report.locate(names[fold])
        report.error((*at, "name"), f"the name {name[:64]!r} is taken by the entry in line {line}")
    names.setdefault(fold, (*at, "name"))
    if fold == MAIN and name != MAIN:
        report.error((*at, "name"), "the main agent is called 'main'", "write it in lower case")


@dataclass(frozen=True, slots=True)
class CheckedValues:
    """What one layer says about an agent, in our keys, with the places of its keys."""

    values: Mapping[str, Any] = field(repr=False)  # may hold secrets in clear
    locate: Locate


def check_values(
    value: dict[str, Any], at: KeyPath, report: Report, locate: Locate, *, has_name: bool
) -> CheckedValues:
    """Check what one layer says about an agent; findings go to `report`.

    `at` is where the object stands in its document, `locate` finds places in that document.
    """
    translated = translate(without_nulls(value), at, report)
    expand_shorthands(translated.values)
    try:
        Entry.model_validate(translated.values if has_name else {**translated.values, "name": "x"})
    except ValidationError as error:
        keys: Iterable[str] = (*Entry.model_fields, *map(str, ENTRY_KEYS))
        report.invalid(
            error.errors(include_url=False, include_input=True),
            known=lambda loc: known_keys(loc) if loc else keys,
            place=lambda loc: (*at, *translated.written_at(loc)),
        )
    if value.get("name") == MAIN and value.get("enabled") is False:
        report.error(
            (*at, "enabled"),
            "the main agent can't be disabled",
            "remove the key; other agents can be disabled",
        )
    return CheckedValues(
        translated.values, lambda where: locate((*at, *translated.written_at(where)))
    )
