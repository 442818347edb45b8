"""Any script of edits and commands ends in what the last valid file and the operator say.

The model knows three things: the entries of the last valid file, the operator's wishes, and that an
agent whose entry did not change keeps its instance.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from agentsup.model.principal import OPERATOR
from tests.support.simloop import VirtualLoop
from tests.support.virtual_daemon import VirtualDaemon, agent

NAMES = ("ann", "ben", "cat")
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "provider": st.sampled_from(["p1", "p2"]),
        "description": st.sampled_from(["d1", "d2"]),
        "enabled": st.booleans(),
    },
)
FILES = st.dictionaries(st.sampled_from(NAMES), FIELDS)
BROKEN = st.sampled_from(
    [
        "",
        "[",
        "{}",
        '[{"name": "ann"},',
        '[{"name": "ann", "modle": "x"}]',
        '[{"name": "../ann"}]',
        '[{"name": "ann"}, {"name": "ANN"}]',
        '[{"name": 7}]',
    ]
)


class ReconcileMachine(RuleBasedStateMachine):
    @initialize(files=FILES)
    def open(self, files: dict[str, Any]) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.loop = VirtualLoop()
        self.runner = asyncio.Runner(loop_factory=lambda: self.loop)
        self.files = files
        self.down: set[str] = set()
        self.house = self.run(VirtualDaemon.open(self.folder / "home", self.entries()))
        self.built = {name: self.needs(name) for name in self.wanted()}
        self.instances = self.house.instances()

    def run(self, work: Any) -> Any:
        return self.runner.run(work)

    def entries(self) -> list[dict[str, Any]]:
        return [agent(name, **fields) for name, fields in self.files.items()]

    def needs(self, name: str) -> Any:
        """What a change of which takes a rebuild."""
        return self.files.get(name, {}).get("provider")

    def wanted(self) -> set[str]:
        return {
            name
            for name, fields in self.files.items()
            if fields.get("enabled", True) and name not in self.down
        }

    async def settle(self, *works: Any) -> None:
        for work in works:
            await work
        await self.house.settled()

    def check(self, restarted: frozenset[str] = frozenset()) -> None:
        """The running set, and who kept its instance."""
        now = self.house.instances()
        assert set(now) == {"main", *self.wanted()}
        for name in now:
            stays = name in self.instances and name not in restarted
            if name == "main" or (stays and self.built.get(name) == self.needs(name)):
                assert now[name] == self.instances[name], f"{name} was touched"
            elif stays:
                assert now[name] != self.instances[name], f"{name} was not rebuilt"
        self.instances = now
        self.built = {name: self.needs(name) for name in self.wanted()}

    def take(self, files: dict[str, Any]) -> None:
        self.down -= self.files.keys() - files.keys()  # a removal ends an operator's stop
        self.files = files

    @rule(files=FILES)
    def edit(self, files: dict[str, Any]) -> None:
        self.take(files)
        self.run(self.settle(self.house.save(self.entries())))
        self.check()

    @rule(scripts=st.lists(st.one_of(FILES, BROKEN), min_size=2, max_size=6))
    def edit_quickly(self, scripts: list[Any]) -> None:
        """Several saves, each read, none waited for; instances in between don't matter."""
        works = []
        touched: set[str] = set()
        for script in scripts:
            if isinstance(script, str):
                works.append(self.house.save(script))
                continue
            for name in NAMES:
                before, after = self.files.get(name), script.get(name)
                if before != after:
                    touched.add(name)
            self.take(script)
            works.append(self.house.save(self.entries()))
        self.run(self.settle(*works))
        if isinstance(scripts[-1], str):
            assert self.run(self.house.daemon.control.status()).config_error
        self.check(frozenset(touched))

    @rule(text=BROKEN)
    def break_the_file(self, text: str) -> None:
        self.run(self.settle(self.house.save(text)))
        assert self.run(self.house.daemon.control.status()).config_error
        self.check()

    @rule(name=st.sampled_from(NAMES))
    def stop(self, name: str) -> None:
        if name in self.files:
            self.down.add(name)
            self.run(self.settle(self.house.daemon.control.stop_agent(name, OPERATOR)))
            self.check()

    @rule(name=st.sampled_from(NAMES))
    def start(self, name: str) -> None:
        if self.files.get(name, {"enabled": False}).get("enabled", True):
            self.down.discard(name)
            self.run(self.settle(self.house.daemon.control.start_agent(name, OPERATOR)))
            self.check()

    @rule(name=st.sampled_from(NAMES), files=FILES)
    def start_while_editing(self, name: str, files: dict[str, Any]) -> None:
        async def both() -> None:
            editing = asyncio.ensure_future(self.house.save(self.entries()))
            if known:
                await self.house.daemon.control.start_agent(name, OPERATOR)
            await editing
            await self.house.settled()

        known = self.files.get(name, {"enabled": False}).get("enabled", True) and name in files
        self.take(files)
        if known and not files[name].get("enabled", True):
            known = False
        if known:
            self.down.discard(name)
        self.run(both())
        self.check(frozenset(NAMES))

    @rule(kill=st.booleans())
    def restart_the_daemon(self, kill: bool) -> None:
        self.run(self.house.restart(kill=kill))
        self.run(self.house.settled())
        assert set(self.house.instances()) == {"main", *self.wanted()}
        self.instances = self.house.instances()
        self.built = {name: self.needs(name) for name in self.wanted()}

    @invariant()
    def one_stack_each(self) -> None:
        if hasattr(self, "house"):
            ids = [unit.agent_id for unit in self.house.daemon.fleet.units()]
            assert len(ids) == len(set(ids))
            assert all(unit.child.status.abandoned == 0 for unit in self.house.daemon.fleet.units())

    def teardown(self) -> None:
        if hasattr(self, "house"):
            self.run(self.house.stop())
            self.runner.close()
            shutil.rmtree(self.folder)


TestReconcile = pytest.mark.timeout(180)(ReconcileMachine.TestCase)
TestReconcile.settings = settings(max_examples=25, stateful_step_count=12, deadline=None)
