"""What is wrong in a file, where, and what was probably meant.

A `Finding` is an error (nothing of the load is applied) or a warning (applied, and told). Values
never appear in a finding where their field may hold a secret.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic_core import ErrorDetails

from agentsup.model.errors import ConfigError, ConfigErrors

_KINDS = {
    dict: "an object",
    list: "a list",
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    type(None): "null",
}

KeyPath = tuple[str | int, ...]
"""Where a value stands in a document: keys and indexes from the top."""

Locate = Callable[[KeyPath], tuple[int | None, int | None]]
"""Line and column of the value at a key path, or of its nearest parent in the text."""

MAX_FINDINGS = 50
"""More are not reported from one file; the first ones are what a person mends first."""

_SECRET_NAME = re.compile(
    r"(key|token|secret|passw|credential|authorization|cookie)", re.IGNORECASE
)
_SECRET_TEXT = re.compile(r"\d{5,}:\S|sk-|syt_|ghp_|Bearer ")
"""How tokens begin: one pasted into the wrong field is not shown either."""


class Severity(StrEnum):
    """Whether a finding keeps the file from being applied."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to tell about a file. `line` and `column` count from 1, columns in characters."""

    severity: Severity
    message: str
    path: str | None = None
    line: int | None = None
    column: int | None = None
    field: str | None = None
    hint: str | None = None

    @property
    def is_error(self) -> bool:
        """Whether it keeps the file from being applied."""
        return self.severity is Severity.ERROR

    def as_error(self) -> ConfigError:
        """The same as an exception of the error tree."""
        return ConfigError(
            self.message,
            path=self.path,
            line=self.line,
            column=self.column,
            field=self.field,
            hint=self.hint,
        )

    def __str__(self) -> str:
        """One line: file:line:column: field: what is wrong (what to do)."""
        return str(self.as_error())


class Report:
    """Collects findings of one document, placing each by its key path."""

    def __init__(self, path: str, locate: Locate) -> None:
        """`path` names the file in findings; `locate` finds a key path in its text."""
        self._path = path
        self._locate = locate
        self._found: list[Finding] = []

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was found, in the order of the text, at most `MAX_FINDINGS` errors."""
        ordered = sorted(self._found, key=lambda each: (each.line or 0, each.column or 0))
        return tuple(ordered)

    @property
    def has_errors(self) -> bool:
        """Whether anything found keeps the file from being applied."""
        return any(each.is_error for each in self._found)

    @property
    def is_full(self) -> bool:
        """Whether enough was found; more is not looked for."""
        return len(self._found) >= MAX_FINDINGS

    def error(self, where: KeyPath, message: str, hint: str | None = None) -> None:
        """Add an error at `where`."""
        self._add(Severity.ERROR, where, message, hint)

    def warning(self, where: KeyPath, message: str, hint: str | None = None) -> None:
        """Add a warning at `where`."""
        self._add(Severity.WARNING, where, message, hint)

    def error_at(self, where: KeyPath, line: int, column: int, message: str) -> None:
        """Add an error whose place is known already."""
        if not self.is_full:
            field = field_path(where)
            self._found.append(Finding(Severity.ERROR, message, self._path, line, column, field))

    def locate(self, where: KeyPath) -> tuple[int | None, int | None]:
        """Line and column of a key path."""
        return self._locate(where)

    def _add(self, severity: Severity, where: KeyPath, message: str, hint: str | None) -> None:
        if self.is_full:
            return
        line, column = self._locate(where)
        self._found.append(
            Finding(severity, message, self._path, line, column, field_path(where), hint)
        )

    def invalid(
        self,
        details: Iterable[ErrorDetails],
        known: Callable[[KeyPath], Iterable[str]],
        place: Callable[[KeyPath], KeyPath] = lambda loc: loc,
    ) -> None:
        """Add pydantic's findings as sentences; `place` turns its location into a key path."""
        for each in details:
            loc = tuple(each["loc"])
            message, hint = explain_invalid(each, known(loc[:-1]))
            self.error(place(loc), message, hint)


def raise_errors(findings: Iterable[Finding]) -> None:
    """Raise `ConfigErrors` with every error among `findings`; return where there is none."""
    if errors := tuple(each.as_error() for each in findings if each.is_error):
        raise ConfigErrors(errors)


def field_path(where: KeyPath) -> str:
    """A key path as people read it: `[2].slots.peer`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part[:60]}" for part in where)
    return text.removeprefix(".") or "(file)"


def is_secret_name(key: object) -> bool:
    """Whether a key's name says that its text is a secret."""
    return isinstance(key, str) and _SECRET_NAME.search(key) is not None


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """A hint naming the closest known word, or None where none is close."""
    by_fold = {each.casefold(): each for each in known}
    close = difflib.get_close_matches(word.casefold()[:100], by_fold, n=1, cutoff=0.6)
    return f"did you mean {by_fold[close[0]]!r}?" if close else None


def kind_of(value: object) -> str:
    """What a JSON or TOML value is, in words."""
    return _KINDS.get(type(value), "something else")


def _shown(loc: Sequence[object], value: object) -> str:
    """A value for a message: short plain text only, nothing of a field that may be secret."""
    looks_secret = isinstance(value, str) and _SECRET_TEXT.match(value) is not None
    if looks_secret or any(is_secret_name(part) for part in loc):
        return "the value"
    if isinstance(value, str) and len(value) <= 40 and value.isprintable():
        return repr(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return kind_of(value)
    return repr(value) if isinstance(value, float) or abs(value) < 10**15 else "this number"


_BOUNDS = {
    "greater_than": ("gt", "more than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}

_EXPECTED = {
    "string_type": "a text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a smaller number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}

_EXPECTED_AT = {
    "slots": "a whole number or an object with interactive, peer and background",
    "streaming": "true, false or an object",
}


def explain_invalid(error: ErrorDetails, known: Iterable[str]) -> tuple[str, str | None]:
    """Turn one pydantic finding into a sentence and a hint."""
    kind, loc, value = error["type"], error["loc"], error.get("input")
    last = loc[-1] if loc else ""
    context: dict[str, Any] = error.get("ctx", {})
    if kind == "extra_forbidden":
        return f"unknown key {str(last)[:60]!r}", did_you_mean(str(last), known)
    if kind == "missing":
        return f"the key {last!r} is missing", None
    if kind in _EXPECTED:
        expected = _EXPECTED_AT.get(str(last), _EXPECTED[kind])
        return f"expected {expected}, found {kind_of(value)}", None
    if kind in {"literal_error", "enum"}:
        allowed = re.findall(r"'([^']*)'", str(context.get("expected", "")))
        hint = did_you_mean(value, allowed) if isinstance(value, str) else None
        return f"{_shown(loc, value)} is not one of {', '.join(allowed)}", hint
    if kind in _BOUNDS:
        key, words = _BOUNDS[kind]
        return f"{_shown(loc, value)} is out of range; it must be {words} {context[key]}", None
    if kind == "value_error":
        return str(context.get("error", error["msg"])), None
    return f"{_shown(loc, value)}: {error['msg'][:1].lower()}{error['msg'][1:]}", None
