"""Real parts for live tests: a Synapse for the whole run, a headless Chromium for each test.

A part that is missing fails the test; `make test-live` installs what it can. Synapse is started
before the first test and outlives them all, so nobody may kill it: `own_synapse` is for that.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import cast

import pytest

from agentsup.testing.faulty_proxy import FaultyProxy
from agentsup.testing.matrix_driver import MatrixPerson
from agentsup.testing.synapse import Synapse
from tests.live.browser import Browsing, Page, open_browser
from tests.process.conftest import make_daemon  # noqa: F401  # the fixture

HERE = Path(__file__).parent
TEST_S = 60.0
SHARED = pytest.StashKey[Synapse]()
TROUBLE = pytest.StashKey[BaseException]()

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
    config = session.config
    wanted = any("synapse" in getattr(item, "fixturenames", ()) for item in session.items)
    if not wanted or config.option.collectonly:
        return
    folder = cast("pytest.TempPathFactory", config._tmp_path_factory)  # type: ignore[attr-defined]  # made at configure; no fixture exists yet
    try:
        synapse = Synapse(folder.mktemp("synapse"))
        asyncio.run(synapse.start())
    except Exception as error:  # noqa: BLE001  # each test that wants it fails with this
        config.stash[TROUBLE] = error
    else:
        config.stash[SHARED] = synapse


def pytest_unconfigure(config: pytest.Config) -> None:
    """End it."""
    if (synapse := config.stash.get(SHARED, None)) is not None:
        asyncio.run(synapse.kill())


@pytest.fixture
def synapse(request: pytest.FixtureRequest) -> Synapse:
    """The Synapse of this run; don't kill it."""
    if (error := request.config.stash.get(TROUBLE, None)) is not None:
        raise error
    return request.config.stash[SHARED]


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
    """`await account("ann")`: a fresh account of that name for this test; its Matrix id.

    The password is `PASSWORD`.
    """
    number = request.config.stash.setdefault(COUNTER, [0])

    async def register(name: str) -> str:
        number[0] += 1
        return await synapse.register(f"{name}{number[0]}", PASSWORD)

    return register


COUNTER = pytest.StashKey[list[int]]()


@pytest.fixture
async def person(synapse: Synapse, account: Register) -> AsyncIterator[Person]:
    """`await person("ann")`: a person with a fresh account, logged in."""
    async with AsyncExitStack() as stack:

        async def make(name: str) -> MatrixPerson:
            user_id = await account(name)
            made = MatrixPerson(synapse.url, user_id, PASSWORD)
            return await stack.enter_async_context(made)

        yield make


@pytest.fixture
async def browsing(tmp_path: Path) -> AsyncIterator[Browsing]:
    """A headless Chromium: `await browsing.page(device="phone", scheme="dark")`."""
    async with open_browser(tmp_path / "browser") as made:
        yield made
        made.check()


@pytest.fixture
async def page(browsing: Browsing) -> Page:
    """A page on a desktop, light."""
    return await browsing.page()
