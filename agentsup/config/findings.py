"""Findings: what is wrong in a file, where, and what was probably meant.

A ``ConfigFinding`` is an error (nothing of the load is applied) or a warning (applied and
reported). A finding never contains a value if its field may hold a secret.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, NoReturn

from pydantic_core import ErrorDetails

from agentsup.model.errors import WHOLE_FILE, ConfigError, ConfigErrors

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
"""The path of a value in a document: keys and indexes from the top."""

Locate = Callable[[KeyPath], tuple[int | None, int | None]]
"""Returns line and column of the value at a key path, or of its nearest parent in the text."""

MAX_FINDINGS = 50
"""The most findings for one file; a person corrects the first ones first."""

_SECRET_NAME = re.compile(
    r"(key|token|secret|passw|credential|authorization|cookie)", re.IGNORECASE
)
_SECRET_TEXT = re.compile(r"\d{5,}:\S|sk-|syt_|ghp_|Bearer ")
"""Prefixes of tokens: one in the wrong field is not shown either."""


class Severity(StrEnum):
    """Whether a finding prevents the file from being applied."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class ConfigFinding:
    """One problem in a file. ``line`` and ``column`` count from 1, columns in characters."""

    severity: Severity
    message: str
    path: str | None = None
    line: int | None = None
    column: int | None = None
    field: str | None = None
    hint: str | None = None

    @property
    def is_error(self) -> bool:
        """Whether it prevents the file from being applied."""
        return self.severity is Severity.ERROR

    def as_error(self) -> ConfigError:
        """The finding as an exception of the error tree."""
        facts = asdict(self)
        del facts["severity"]
        return ConfigError(**facts)

    def __str__(self) -> str:
        """One line: file:line:column: field: what is wrong (what to do)."""
        return str(self.as_error())


class Report:
    """Collects the findings of one document, and locates each by its key path."""

    def __init__(self, path: str, locate: Locate = lambda where: (None, None)) -> None:
        """``path`` names the file in findings; ``locate`` finds a key path in its text."""
        self.locate = locate
        self._path = path
        self._found: list[ConfigFinding] = []

    @property
    def findings(self) -> tuple[ConfigFinding, ...]:
        """The findings in the order of the text, at most ``MAX_FINDINGS``."""
        return tuple(sorted(self._found, key=lambda each: (each.line or 0, each.column or 0)))

    @property
    def has_errors(self) -> bool:
        """Whether any finding prevents the file from being applied."""
        return any(each.is_error for each in self._found)

    @property
    def is_full(self) -> bool:
        """Whether the limit is reached; no further findings are added."""
        return len(self._found) >= MAX_FINDINGS

    def error(
        self,
        where: KeyPath,
        message: str,
        hint: str | None = None,
        *,
        at: tuple[int, int] | None = None,
        severity: Severity = Severity.ERROR,
    ) -> None:
        """Add an error at ``where``. ``at``: its line and column, if they are known."""
        if not self.is_full:
            position, field = at or self.locate(where), field_path(where)
            self._found.append(ConfigFinding(severity, message, self._path, *position, field, hint))

    def warning(self, where: KeyPath, message: str, hint: str | None = None) -> None:
        """Add a warning at ``where``."""
        self.error(where, message, hint, severity=Severity.WARNING)

    def invalid(
        self,
        details: Iterable[ErrorDetails],
        known: Callable[[KeyPath], Iterable[str]],
        key_path_of: Callable[[KeyPath], KeyPath] = lambda loc: loc,
    ) -> None:
        """Add pydantic's findings as sentences; ``key_path_of`` turns a location into a key path."""
        for each in details:
            loc = tuple(each["loc"])
            message, hint = explain_invalid(each, known(loc[:-1]))
            self.error(key_path_of(loc), message, hint)


def raise_errors(findings: Iterable[ConfigFinding]) -> None:
    """Raise ``ConfigErrors`` with every error among ``findings``; return if there is none."""
    if errors := tuple(each.as_error() for each in findings if each.is_error):
        raise ConfigErrors(errors)


def refuse_file(
    path: str, message: str, position: tuple[int, int] = (1, 1), hint: str | None = None
) -> NoReturn:
    """Raise ``ConfigErrors`` with one error about the file as a whole."""
    found = ConfigFinding(Severity.ERROR, message, path, *position, WHOLE_FILE, hint)
    raise ConfigErrors((found.as_error(),)) from None


def field_path(where: KeyPath) -> str:
    """A key path as people read it: ``[2].slots.peer``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part[:60]}" for part in where)
    return text.removeprefix(".") or WHOLE_FILE


def is_secret_name(key: object) -> bool:
    """Whether a key's name suggests that its text is a secret."""
    return isinstance(key, str) and _SECRET_NAME.search(key) is not None


def is_secret_text(text: str) -> bool:
    """Whether a text begins like a token, whatever it is called."""
    return _SECRET_TEXT.search(text) is not None


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """A hint with the closest known word, or None if none is close."""
    by_fold = {each.casefold(): each for each in known}
    close = difflib.get_close_matches(word.casefold()[:100], by_fold, n=1, cutoff=0.6)
    return f"did you mean {by_fold[close[0]]!r}?" if close else None


def kind_of(value: object) -> str:
    """The type of a JSON or TOML value, in words."""
    return _KINDS.get(type(value), "something else")


def _shown(loc: Sequence[object], value: object) -> str:
    """A value for a message: only short plain text, and nothing of a field that may be secret."""
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
