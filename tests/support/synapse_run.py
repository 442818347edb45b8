"""One Synapse for a whole run of tests, started before the first test that wants it.

Each ``conftest.py`` whose tests want it calls ``begin`` from ``pytest_collection_finish`` and ``end``
from ``pytest_unconfigure``. So it is no test's leftover, and it outlives them all.
"""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from tests.support.synapse import Synapse

_SHARED = pytest.StashKey[Synapse]()
_TROUBLE = pytest.StashKey[BaseException]()
_NUMBER = pytest.StashKey[list[int]]()


def begin(session: pytest.Session, name: str = "synapse") -> None:
    """Start it if a collected test has the fixture or the parameter ``name``."""
    config = session.config
    if config.option.collectonly or _SHARED in config.stash or _TROUBLE in config.stash:
        return
    if not any(name in _wishes(item) for item in session.items):
        return
    folder = cast("pytest.TempPathFactory", config._tmp_path_factory)  # type: ignore[attr-defined]  # made at configure; no fixture exists yet
    try:
        synapse = Synapse(folder.mktemp("synapse"))
        asyncio.run(synapse.start())
    except Exception as error:  # noqa: BLE001  # each test that wants it fails with this
        config.stash[_TROUBLE] = error
    else:
        config.stash[_SHARED] = synapse


def _wishes(item: pytest.Item) -> list[object]:
    callspec = getattr(item, "callspec", None)
    return [*getattr(item, "fixturenames", ()), *(callspec.params.values() if callspec else ())]


def end(config: pytest.Config) -> None:
    """End it, if it runs."""
    if (synapse := config.stash.get(_SHARED, None)) is not None:
        del config.stash[_SHARED]
        asyncio.run(synapse.kill())


def synapse_of(config: pytest.Config) -> Synapse:
    """The Synapse of this run; don't kill it. Raises what its start raised."""
    if (error := config.stash.get(_TROUBLE, None)) is not None:
        raise error
    return config.stash[_SHARED]


async def new_account(config: pytest.Config, name: str, password: str) -> str:
    """Register a fresh account whose name begins with ``name``; its Matrix id."""
    number = config.stash.setdefault(_NUMBER, [0])
    number[0] += 1
    return await synapse_of(config).register(f"{name}{number[0]}", password)
