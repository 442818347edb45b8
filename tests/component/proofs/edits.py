"""P4: an edit applies at once and touches only what changed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentsup.config import ConfigSnapshot, Home, Overrides, load, reading
from agentsup.daemon.runtime.fleet import FleetUnit
from agentsup.daemon.runtime.reconcile import Reconciler
from agentsup.model.errors import ConfigErrors
from tests.component.proofs.house import ProofDaemon, agent
from tests.component.proofs.proof import Claim, Proof, Removal

claim = Claim("P4")
STREAM = [
    {
        "match": "(.*)",
        "steps": [{"stream": {"chunks": ["one ", "two ", "three"], "every": 2}}, {"say": " to $1"}],
    }
]
APPLIED_S = 0.3

BROKEN_FILES = (
    '[{"name": "ann", ]',
    '[{"name": "ann"}, {"name": "ann"}]',
    '[{"name": "ann", "enginee": "scripted"}]',
    '[{"name": "../ann"}]',
    '[{"name": "ann", "slots": "many"}]',
    "",
    "\x00\x01\x02",
)


def instances(house: ProofDaemon) -> dict[str, str]:
    return {unit.spec.name: unit.instance_id for unit in house.daemon.fleet.units()}


async def a_broken_file_changes_nothing(home: Path) -> None:
    """The file is saved broken in several ways while an agent streams; then it is mended."""
    agents = [agent("main"), agent("ann", STREAM), agent("bob", STREAM)]
    async with ProofDaemon(home, agents) as house:
        await claim.comes(lambda: house.state("bob") == "running", 10, "bob is not up")
        before = instances(house)
        await house.say("ann", "Eva")
        for content in BROKEN_FILES:
            await house.edit(content)
            await asyncio.sleep(0.5)
            claim.holds(instances(house) == before, f"{content!r} changed what runs")
            states = {name: house.state(name) for name in before}
            claim.holds(set(states.values()) == {"running"}, f"{content!r} left {states}")
            view = await house.daemon.control.status()
            claim.holds(
                "agents.json" in view.config_error, f"the status is silent about {content!r}"
            )
        claim.holds(house.heard("not applied"), "main's conversation heard nothing")
        claim.holds(house.heard("agents.json:1:18"), "no line and column are named")
        await claim.comes(
            lambda: house.heard("one two three to Eva"), 10, "an open stream was cut short"
        )
        await house.edit([*agents, agent("cat", STREAM)])
        await claim.comes(lambda: house.state("cat") == "running", 5, "the mended file is ignored")


async def an_edit_touches_only_what_changed(home: Path) -> None:
    """One agent is changed, one added, one removed; a third one streams on."""
    agents = [agent("main"), agent("ann", STREAM), agent("bob"), agent("cat", STREAM)]
    async with ProofDaemon(home, agents) as house:
        await claim.comes(lambda: house.state("cat") == "running", 10, "cat is not up")
        before = instances(house)
        await house.say("cat", "Eva")
        await asyncio.sleep(1)
        ann = agent("ann", [{"match": ".*", "steps": [{"say": "new"}]}])
        await claim.within(
            APPLIED_S,
            house.edit([agent("main"), ann, agent("cat", STREAM), agent("dan")]),
            "the edit was not decided at once",
        )
        await asyncio.sleep(2)
        after = instances(house)
        claim.holds(set(after) == {"main", "ann", "cat", "dan"}, f"there run {sorted(after)}")
        touched = {name for name in ("main", "ann", "cat") if after[name] != before[name]}
        claim.holds(touched == {"ann"}, f"rebuilt were {sorted(touched)}, changed was ann")
        await claim.comes(
            lambda: house.heard("one two three to Eva"), 10, "an open stream was cut short"
        )
        claim.holds(instances(house)["cat"] == before["cat"], "cat was rebuilt after its turn")


async def the_last_of_many_saves_holds(home: Path) -> None:
    """Ten saves within a tenth of a second, some of them broken, each told of at once."""
    async with ProofDaemon(home, [agent("main"), agent("ann")]) as house:
        telling = []
        for number in range(10):
            entry = agent("ann", description=f"save {number}")
            house.write_agents([agent("main"), entry])
            if number % 4 == 2:
                house.home.agents_json.write_text("[{")
            assert house.edit_seen is not None
            telling.append(asyncio.ensure_future(house.edit_seen({"agents.json"})))
            await asyncio.sleep(0.0001)
        await asyncio.wait(telling)
        await asyncio.sleep(1)
        now = house.unit("ann").spec.description
        claim.holds(now == "save 9", f"{now!r} is applied, save 9 is in the file")


# -- removals --------------------------------------------------------------------------------------


def _broken_is_empty(patch: pytest.MonkeyPatch) -> None:
    def lenient(
        home: Home,
        overrides: Overrides | None = None,
        *,
        previous: ConfigSnapshot | None = None,
        **more: Any,
    ) -> ConfigSnapshot:
        try:
            return load(home, overrides, previous=previous, **more)
        except ConfigErrors:
            assert previous is not None
            only_main: Mapping[str, Any] = {
                name: spec for name, spec in previous.specs.items() if spec.is_main
            }
            return replace(previous, specs=only_main)

    patch.setattr(reading, "load", lenient)


def _rebuild_everything(patch: pytest.MonkeyPatch) -> None:
    def fields(self: Reconciler, unit: FleetUnit) -> tuple[str, ...]:
        return ("everything",) if unit.stack is not None else ()

    patch.setattr(Reconciler, "rebuild_fields", fields)


def _drop_while_busy(patch: pytest.MonkeyPatch) -> None:
    original = Reconciler.reload

    async def reload(self: Reconciler) -> bool:
        return True if self._lock.locked() else await original(self)

    patch.setattr(Reconciler, "reload", reload)


PROOFS = (
    Proof(
        "a broken file changes nothing",
        "P4",
        a_broken_file_changes_nothing,
        Removal("a broken file counts as empty", _broken_is_empty),
    ),
    Proof(
        "an edit touches only what changed",
        "P4",
        an_edit_touches_only_what_changed,
        Removal("rebuild everything", _rebuild_everything),
    ),
    Proof(
        "the last of many saves holds",
        "P4",
        the_last_of_many_saves_holds,
        Removal("edits dropped while one is applied", _drop_while_busy),
    ),
)
