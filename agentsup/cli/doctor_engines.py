"""What the agents think with: by the running daemon, and by the environment of this shell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from agentsup.cli.client import Client
from agentsup.cli.failure import Failed
from agentsup.cli.locate import Place
from agentsup.config.home import Home
from agentsup.config.secrets import resolve_options
from agentsup.config.snapshot import load
from agentsup.engines.registry import AUTO, best_available
from agentsup.model.agent import MAIN, OFFLINE
from agentsup.model.engine import EngineSpec
from agentsup.model.errors import AgentsupError

__all__ = ["Engine", "Finding", "look"]


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine, and why `auto` came to it; the reason is empty where an entry names it."""

    name: str
    reason: str

    @property
    def is_fallback(self) -> bool:
        """It answers offline, and nobody chose that."""
        return self.name == OFFLINE and bool(self.reason)

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}" if self.reason else self.name


@dataclass(frozen=True, slots=True)
class Finding:
    """One line for the doctor."""

    is_well: bool
    text: str
    advice: str = ""


def look(place: Place, environ: Mapping[str, str]) -> Iterator[Finding]:
    """What the running daemon says, and where this shell would have it otherwise, that too; this
    shell alone where none runs."""
    here, there = _here(place.home, environ), _there(place)
    if there is None:
        if here is not None:
            yield Finding(not here.is_fallback, f"main thinks with {here}")
        return
    for engine, agents in there.items():
        verb = "thinks" if len(agents) == 1 else "think"
        yield Finding(not engine.is_fallback, f"{', '.join(agents)} {verb} with {engine}")
        if MAIN in agents and here is not None and here != engine:
            yield Finding(
                False,
                f"a daemon started from this shell would let main think with {here}",
                f"`{place.command('restart')}` in the shell whose environment is the right one",
            )


def _here(home: Home, environ: Mapping[str, str]) -> Engine | None:
    """Main's engine in a daemon started from here; None where the files are wrong, which the check
    of the configuration tells."""
    try:
        spec = load(home).specs[MAIN]
        options = resolve_options(spec.engine_options, base=home.root, environ=environ)
    except AgentsupError:
        return None
    if spec.engine != AUTO:
        return Engine(spec.engine, "")
    wanted = EngineSpec(
        engine=AUTO, model=spec.model or "", provider=spec.provider or "", options=options
    )
    return Engine(*best_available(environ, wanted))


def _there(place: Place) -> dict[Engine, list[str]] | None:
    """The agents by their engine in the running daemon; None where none answers."""
    try:
        answer = Client.to(place).ask("GET", "/agents", timeout_s=5.0)
    except Failed:
        return None
    if answer.status != 200:
        return None
    found: dict[Engine, list[str]] = {}
    for one in answer.document["agents"]:
        engine = Engine(one["engine"], one["engine_reason"])
        found.setdefault(engine, []).append(one["name"])
    return found
