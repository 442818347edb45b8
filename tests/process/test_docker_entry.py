"""The scripts of the image, run as the image runs them, without Docker."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.ports import free_port

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

SCRIPTS = Path(__file__).parents[2] / "packaging" / "docker"


class Image:
    """The environment of a container over a volume."""

    def __init__(self, volume: Path) -> None:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("AGENTSUP_")}
        self.volume = volume
        self._environ = {
            **kept,
            "PATH": f"{Path(sys.executable).parent}:{SCRIPTS}:{os.environ['PATH']}",
            "AGENTSUP_HOME": str(volume),
            "AGENTSUP_API__BIND": "0.0.0.0",
            "AGENTSUP_API__PORT": str(free_port()),
        }

    async def begin(self, script: str, *words: str) -> Process:
        return await asyncio.create_subprocess_exec(
            script, *words, env=self._environ, stdout=DEVNULL, stderr=DEVNULL
        )

    async def code_of(self, script: str, *words: str) -> int:
        process = await self.begin(script, *words)
        async with asyncio.timeout(30):
            return await process.wait()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Process]:
        """The daemon, once its health check passes; ended by SIGTERM as by ``docker stop``."""
        daemon = await self.begin("entrypoint.sh", "run")
        try:
            async with asyncio.timeout(40):
                while await self.code_of("healthcheck.sh") != 0:
                    assert daemon.returncode is None
                    await asyncio.sleep(0.1)
            yield daemon
        finally:
            if daemon.returncode is None:
                daemon.terminate()
            await daemon.wait()


async def test_the_first_start_makes_a_home_and_no_later_one_touches_it(tmp_path: Path) -> None:
    image = Image(tmp_path / "data")
    assert await image.code_of("healthcheck.sh") != 0, "nobody listens yet"
    async with image.running() as daemon:
        assert (image.volume / "agents.json").is_file()
        assert await image.code_of("entrypoint.sh", "send", "main", "hello") == 0
    assert daemon.returncode == 0
    (image.volume / "agents.json").write_text("[]\n")
    async with image.running():
        assert (image.volume / "agents.json").read_text() == "[]\n"
    assert await image.code_of("healthcheck.sh") != 0, "it has ended"


async def test_another_command_makes_no_home(tmp_path: Path) -> None:
    image = Image(tmp_path / "data")
    assert await image.code_of("entrypoint.sh", "version") == 0
    assert not image.volume.exists()
