"""The ``engine_options`` that are the same for every engine that runs a program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from agentsup.engines.failures import NotConfigured

O = TypeVar("O", bound=BaseModel)  # noqa: E741 - the options of one engine

EnvName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class ProgramOptions(BaseModel):
    """Options of every engine that runs a program; secrets are resolved already.

    ``env``: variables for the program. ``home``: ``private`` gives it a home of its own below the
    agent's, ``user`` that of the daemon's user (a CLI finds its own sign-in there).
    ``memory_mb``: the most memory its process group may use, in MiB.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    command: tuple[str, ...] = ()
    env: dict[EnvName, str] = Field(default_factory=dict, repr=False)
    home: Literal["private", "user"] = "private"
    memory_mb: int | None = Field(default=None, ge=16)
    script: str = ""
    """For the scripted engine, which ``auto`` may select; it has no effect here."""


def read_options(kind: type[O], given: Mapping[str, Any], engine: str) -> O:
    """Return ``given`` as ``kind``. Raises ``NotConfigured``, which names the first wrong field."""
    try:
        return kind.model_validate(dict(given))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        known = ", ".join(kind.model_fields)
        extra = f" (known: {known})" if first["type"] == "extra_forbidden" else ""
        raise NotConfigured(
            f"engine_options.{where} of the engine {engine}: {first['msg']}{extra}"
        ) from None
