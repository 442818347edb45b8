"""The script of the scripted engine: reading it, checking it, filling in its strings.

A script is a YAML list of rules. An error in it is one ``ConfigError`` that names the file, the
line, the rule and the step.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from agentsup.engines.failures import FAILURES
from agentsup.model.errors import ConfigError, EngineFailed

MAX_SCRIPT_BYTES = 1024 * 1024
_VARIABLE = re.compile(r"\$(result\b|\d+)")


def _text(value: Any) -> Any:
    """YAML reads ``say: 42`` as a number; it was meant as text."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


Text = Annotated[str, BeforeValidator(_text)]
"""Text in which ``$1``, ``$2`` and ``$result`` are filled in."""


def _number_or_variable(value: Any) -> Any:
    if isinstance(value, str) and not _VARIABLE.search(value):
        raise ValueError("a number of seconds, or a text with $1 or $result in it")
    return value


Seconds = Annotated[NonNegativeFloat | str, BeforeValidator(_number_or_variable)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Stream(_Strict):
    """Text in ``chunks``, ``every`` seconds apart."""

    chunks: list[Text]
    every: Seconds = 0.0


class ToolUse(_Strict):
    """A call of the registered tool ``name``."""

    name: Text
    args: dict[str, Any] = Field(default_factory=dict)


class AskStep(_Strict):
    """A question; ``timeout`` in seconds, none: it waits for ever."""

    text: Text
    options: list[Text] = Field(default_factory=list)
    timeout: Seconds | None = None
    who: Literal["people", "asker", "operators"] = "people"


class Failing(_Strict):
    """A failure of the kind ``code`` (as in ``engines.failures``), with its sentence."""

    code: str
    text: Text = "as the script wants it"
    retry_after: NonNegativeFloat | None = None

    @field_validator("code")
    @classmethod
    def _is_known(cls, value: str) -> str:
        if value not in FAILURES:
            raise ValueError(f"not a kind of failure; one of {', '.join(sorted(FAILURES))}")
        return value

    def error(self, text: str) -> EngineFailed:
        """The failure to raise, its sentence filled in."""
        if self.retry_after is None:
            return FAILURES[self.code](text)
        return FAILURES[self.code](text, retry_after_s=self.retry_after)


class Consumed(_Strict):
    """The usage that the turn reports."""

    input: NonNegativeInt = 0
    output: NonNegativeInt = 0
    usd: NonNegativeFloat | None = None


class ScriptStep(_Strict):
    """One step: exactly one of the fields is set."""

    say: Text | None = None
    stream: Stream | None = None
    sleep: Seconds | None = None
    tool: ToolUse | None = None
    fail: Text | None = None
    trouble: Failing | None = None
    crash: Text | None = None
    exit: int | None = None
    hang: Literal[True] | None = None
    spawn: Seconds | None = None
    question: AskStep | None = None
    file: Text | None = None
    usage: Consumed | None = None
    effect: Text | None = None

    @model_validator(mode="after")
    def _one_step(self) -> ScriptStep:
        given = self.model_fields_set
        if len(given) != 1:
            names = ", ".join(sorted(given)) or "none"
            raise ValueError(f"a step is one of {', '.join(STEPS)}; here: {names}")
        if getattr(self, self.kind) is None:
            raise ValueError(f"{self.kind} has no value")
        return self

    @property
    def kind(self) -> str:
        """The kind of this step."""
        return next(iter(self.model_fields_set))


STEPS: tuple[str, ...] = tuple(ScriptStep.model_fields)


class ScriptRule(_Strict):
    """The steps for a message whose whole text fits ``match`` (a regex; ``.`` fits newlines)."""

    match: Text
    steps: list[ScriptStep]
    nudge: Literal["hint", "wrap_up"] | None = None
    """Only for a turn that is asked once more for this reason."""

    @field_validator("match")
    @classmethod
    def _compiles(cls, value: str) -> str:
        try:
            re.compile(value, re.DOTALL)
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
        return value


@dataclass(frozen=True, slots=True)
class Script:
    """Checked rules, in order."""

    rules: tuple[tuple[re.Pattern[str], tuple[ScriptStep, ...]], ...] = ()
    nudged: Mapping[str, Script] = field(default_factory=dict)
    """Rules for turns that are asked once more, by the reason."""

    def find(
        self, text: str, nudge: str = ""
    ) -> tuple[tuple[ScriptStep, ...], tuple[str, ...]] | None:
        """Steps and groups (whole match first) of the first rule that fits the whole ``text``;
        those for ``nudge`` come first."""
        if nudge in self.nudged:
            found = self.nudged[nudge].find(text)
            if found is not None:
                return found
        for pattern, steps in self.rules:
            match = pattern.fullmatch(text)
            if match is not None:
                return steps, (match.group(0), *(group or "" for group in match.groups()))
        return None


_RULES = TypeAdapter(list[ScriptRule])
_STEPS = TypeAdapter(list[ScriptStep])


def parse_script(source: str | bytes, *, path: str) -> Script:
    """Read a script from YAML text; ``path`` is for messages. Raises ``ConfigError``."""
    if len(source) > MAX_SCRIPT_BYTES:
        raise ConfigError(
            f"the script has {len(source)} bytes; at most {MAX_SCRIPT_BYTES} are read", path=path
        )
    try:
        tree = yaml.compose(source, Loader=yaml.SafeLoader)
        data = yaml.safe_load(source)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ConfigError(
            f"not valid YAML: {error.problem or error.context}",
            path=path,
            line=mark.line + 1 if mark else None,
            column=mark.column + 1 if mark else None,
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise ConfigError(f"not valid YAML: {error}", path=path) from None
    return build_script(data if data is not None else [], path=path, tree=tree)


def build_script(data: Any, *, path: str, tree: yaml.Node | None = None) -> Script:
    """Check rules given as plain data; ``tree`` tells their lines. Raises ``ConfigError``."""
    if not isinstance(data, list):
        raise ConfigError(
            f"a script is a list of rules, this is a {type(data).__name__}",
            path=path,
            line=1,
            hint="begin each rule with '- match: ...'",
        )
    try:
        rules = _RULES.validate_python(data)
    except ValidationError as error:
        raise _finding(error, path, tree) from None
    return Script(
        _compiled(rules, None),
        {nudge: Script(_compiled(rules, nudge)) for nudge in {r.nudge for r in rules if r.nudge}},
    )


def _compiled(
    rules: Sequence[ScriptRule], nudge: str | None
) -> tuple[tuple[re.Pattern[str], tuple[ScriptStep, ...]], ...]:
    return tuple(
        (re.compile(r.match, re.DOTALL), tuple(r.steps)) for r in rules if r.nudge == nudge
    )


def steps_to_data(steps: Sequence[ScriptStep]) -> Any:
    """``steps`` as JSON data, for a checkpoint."""
    return _STEPS.dump_python(list(steps), mode="json", exclude_unset=True)


def steps_from_data(data: Any) -> tuple[ScriptStep, ...]:
    """The reverse of ``steps_to_data``. Raises ``ValueError``."""
    return tuple(_STEPS.validate_python(data))


def fill(value: Any, groups: Sequence[str], result: str) -> Any:
    """``value`` with ``$N`` and ``$result`` filled in, in strings at any depth.

    A number beyond the last group is not replaced (``$5`` may be a price).
    """
    if isinstance(value, str):
        return _VARIABLE.sub(lambda found: _variable(found, groups, result), value)
    if isinstance(value, dict):
        return {key: fill(item, groups, result) for key, item in value.items()}
    if isinstance(value, list):
        return [fill(item, groups, result) for item in value]
    return value


def _variable(found: re.Match[str], groups: Sequence[str], result: str) -> str:
    name = found.group(1)
    if name == "result":
        return result
    index = int(name)
    return groups[index] if index < len(groups) else found.group(0)


# -- positions of errors ---------------------------------------------------------------------------


def _finding(error: ValidationError, path: str, tree: yaml.Node | None) -> ConfigError:
    """The first finding as one sentence with file, line, rule and step."""
    first = error.errors(include_url=False)[0]
    where = [part for part in first["loc"] if isinstance(part, int | str)]
    # Inside a union pydantic adds the tried type to the path; no key of ours looks like that.
    where = [part for part in where if isinstance(part, int) or part.isidentifier()]
    message = str(first["msg"]).removeprefix("Value error, ")
    hint = None
    if first["type"] == "extra_forbidden":
        message = f"unknown key {where[-1]!r}"
        hint = f"steps are {', '.join(STEPS)}" if len(where) > 2 else "a rule has match and steps"
    elif first["type"] == "missing":
        message = f"{where[-1]} is missing"
    elif isinstance(first.get("input"), bool):
        hint = "YAML reads yes, no, on and off as true and false; put text in quotes"
    mark = _mark(tree, where)
    return ConfigError(
        message,
        path=path,
        line=mark.line + 1 if mark else None,
        column=mark.column + 1 if mark else None,
        field=_readable(where),
        hint=hint,
    )


def _readable(where: Sequence[int | str]) -> str:
    """``rule 2, step 1, tool.args`` (counted from one)."""
    words: list[str] = []
    names = iter(where)
    for part in names:
        if isinstance(part, int):
            words.append(f"rule {part + 1}" if not words else f"step {part + 1}")
            if len(words) == 2:
                break
        elif part != "steps":
            words.append(part)
            break
    rest = ".".join(str(part) for part in names)
    return ", ".join([*words, rest] if rest else words)


def _mark(tree: yaml.Node | None, where: Sequence[int | str]) -> yaml.Mark | None:
    """Return the position of the deepest node on the path ``where``."""
    node = tree
    mark = node.start_mark if node is not None else None
    for part in where:
        below: yaml.Node | None = None
        if isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            below = node.value[part] if part < len(node.value) else None
        elif isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if key.value == part:
                    below, mark = value, key.start_mark
        if below is None:
            break
        node = below
        if not isinstance(part, str):
            mark = node.start_mark
    return mark
