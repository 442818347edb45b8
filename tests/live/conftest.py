"""Real parts for live tests: a Synapse for the whole run, a headless Chromium for each test.

A part that is missing fails the test; ``make test-live`` installs what it can. Synapse is started
before the first test and outlives them all, so nobody may kill it: ``own_synapse`` is for that.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from playwright.async_api import Page

from tests.live import package
from tests.live.browser import Browsing, open_browser
from tests.process.conftest import make_daemon  # noqa: F401  # the fixture
from tests.support import synapse_run
from tests.support.faulty_proxy import FaultyProxy
from tests.support.matrix_driver import MatrixPerson
from tests.support.synapse import Synapse

HERE = Path(__file__).parent
TEST_S = 180.0

Register = Callable[[str], Awaitable[str]]
Person = Callable[..., Awaitable[MatrixPerson]]
PASSWORD = "a long and lovely password"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Real parts take their time."""
    for item in items:
        if item.path.is_relative_to(HERE) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_S))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start Synapse if a test wants it: before any test, so that it is none's leftover."""
    synapse_run.begin(session)


def pytest_unconfigure(config: pytest.Config) -> None:
    """End it."""
    synapse_run.end(config)


@pytest.fixture
def synapse(request: pytest.FixtureRequest) -> Synapse:
    """The Synapse of this run; don't kill it."""
    return synapse_run.synapse_of(request.config)


@pytest.fixture
async def own_synapse(tmp_path: Path) -> AsyncIterator[Synapse]:
    """A Synapse of this test alone, to kill and start again."""
    async with Synapse(tmp_path / "synapse") as made:
        yield made


@pytest.fixture
async def proxy(synapse: Synapse) -> AsyncIterator[FaultyProxy]:
    """The Synapse of this run behind trouble on demand."""
    async with FaultyProxy(synapse.url) as made:
        yield made


@pytest.fixture
def account(synapse: Synapse, request: pytest.FixtureRequest) -> Register:
    """``await account("ann")``: a fresh account of that name for this test; its Matrix id.

    The password is ``PASSWORD``.
    """

    async def register(name: str) -> str:
        return await synapse_run.new_account(request.config, name, PASSWORD)

    return register


@pytest.fixture
async def person(synapse: Synapse, account: Register) -> AsyncIterator[Person]:
    """``await person("ann")``: a person with a fresh account, logged in."""
    async with AsyncExitStack() as stack:

        async def make(name: str) -> MatrixPerson:
            user_id = await account(name)
            made = MatrixPerson(synapse.url, user_id, PASSWORD)
            return await stack.enter_async_context(made)

        yield make


@pytest.fixture(scope="session")
def archives(tmp_path_factory: pytest.TempPathFactory) -> package.Archives:
    """Wheel and sdist of this repository."""
    return package.built(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="session")
def clone(archives: package.Archives, tmp_path_factory: pytest.TempPathFactory) -> package.Clone:
    """A fresh clone in which ``make run`` was tried."""
    folder = package.unpacked(archives.sdist, tmp_path_factory.mktemp("clone"))
    return package.run_fresh(folder)


@pytest.fixture(scope="session")
def installed_bin(
    archives: package.Archives, clone: package.Clone, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The programs of an environment, outside the checkout, that has the built wheel."""
    return package.installed(archives.wheel, clone, tmp_path_factory.mktemp("installed") / "venv")


@pytest.fixture
async def browsing(tmp_path: Path) -> AsyncIterator[Browsing]:
    """A headless Chromium: ``await browsing.page(device="phone", scheme="dark")``."""
    async with open_browser(tmp_path / "browser") as made:
        yield made
        made.check()


@pytest.fixture
async def page(browsing: Browsing) -> Page:
    """A page on a desktop, light."""
    return await browsing.page()
