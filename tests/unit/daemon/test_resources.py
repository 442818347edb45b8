"""An operator hears once of what was taken from the daemon, and the probe for as long as it lasts."""

from __future__ import annotations

import pytest

from agentsup.daemon.runtime.resources import ResourceKeeper
from agentsup.kit.resources import Change, Resources
from agentsup.model.errors import StoreUnavailable

NICE = Change("nice", "0", "19", is_restored=False)
FILES = Change("limit nofile", "1024/4096", "8/8", is_restored=False)
CORE = Change("limit core", "unlimited/unlimited", "0/unlimited", is_restored=True)


class Kernel:
    def __init__(self) -> None:
        self.found: list[Change] = []
        self.told: list[str] = []
        self.is_full = False

    def give_back(self, start: Resources) -> list[Change]:
        return self.found

    async def tell(self, text: str) -> None:
        if self.is_full:
            raise StoreUnavailable("the disk is full")
        self.told.append(text)


async def test_what_lasts_is_told_once_and_probed_until_it_ends() -> None:
    kernel = Kernel()
    keeper = ResourceKeeper(kernel.give_back)
    await keeper.look(kernel.tell)
    assert (kernel.told, await keeper.probe()) == ([], None)
    kernel.found = [NICE, FILES]
    for _ in range(3):
        await keeper.look(kernel.tell)
    (text,) = kernel.told
    assert "stop the daemon and start it anew: nice 0, then 19" in text
    ill = await keeper.probe() or ""
    assert "limit nofile 1024/4096, then 8/8" in ill
    assert "nice" not in ill, "a slower daemon is as ready as before"
    kernel.found = []
    await keeper.look(kernel.tell)
    assert await keeper.probe() is None


async def test_what_was_given_back_is_told_each_time_and_no_illness() -> None:
    kernel = Kernel()
    keeper = ResourceKeeper(kernel.give_back)
    kernel.found = [CORE]
    for _ in range(2):
        await keeper.look(kernel.tell)
    assert len(kernel.told) == 2
    assert "Put right: limit core" in kernel.told[0]
    assert await keeper.probe() is None


async def test_what_could_not_be_told_is_told_later() -> None:
    kernel = Kernel()
    keeper = ResourceKeeper(kernel.give_back)
    kernel.found, kernel.is_full = [CORE], True
    with pytest.raises(StoreUnavailable):
        await keeper.look(kernel.tell)
    kernel.found, kernel.is_full = [], False
    await keeper.look(kernel.tell)
    assert "limit core" in kernel.told[0]
