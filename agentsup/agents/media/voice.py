"""Turns a recording into text: by a server that speaks OpenAI's API, or by a program of the machine.

The program is behind the program fence, with the recording as a copy that it may read. Both have a
limit of time; recordings have limits of bytes and minutes.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import json
import os
import shutil
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from agentsup.agents.media.service import MOST_CHARS, Unreadable
from agentsup.engines.process import Fencing, exec_home
from agentsup.kit.childenv import child_env
from agentsup.kit.compute import compute
from agentsup.kit.log import get_logger
from agentsup.kit.outbound import tls
from agentsup.kit.outbound.limits import MIB, AnswerLimits, LimitExceeded
from agentsup.kit.pool import BoundedPool
from agentsup.kit.procgroup import ProcessGroup
from agentsup.kit.safe_files import GuardedFolder
from agentsup.model.errors import AgentsupError, ConfigError

_log = get_logger(__name__)
MAX_BYTES: Final = 24 * MIB
"""OpenAI takes 25 MB."""
_OPUS_RATE: Final = 48_000
_OUT_BYTES: Final = 4 * MOST_CHARS
_NAMES: Final = ("LANG", "LC_ALL", "TZ", "PATH")


class HearSettings(Protocol):
    """``[voice]`` as it is now."""

    @property
    def hear_url(self) -> str: ...
    @property
    def hear_model(self) -> str: ...
    @property
    def hear_command(self) -> tuple[str, ...]: ...
    @property
    def language(self) -> str: ...
    @property
    def max_minutes(self) -> int: ...
    @property
    def timeout_s(self) -> float: ...
    @property
    def is_on(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Hearing:
    """Listens to recordings; shared by all agents."""

    settings: Callable[[], HearSettings]
    key: Callable[[], str]
    """Returns the server's key. Blocks. Raises ``AgentsupError``."""
    fencing: Callable[[], Fencing]
    environ: Mapping[str, str]
    files: BoundedPool

    async def text_of(self, name: str, data: bytes, workspace: Path) -> str:
        """Transcribe a recording. Raises ``Unreadable``."""
        settings = self.settings()
        if not settings.is_on:
            raise Unreadable("no_ears")
        if len(data) > MAX_BYTES or minutes_of(data) > settings.max_minutes:
            raise Unreadable("too_long")
        try:
            async with asyncio.timeout(settings.timeout_s):
                if settings.hear_command:
                    text = await self._by_program(settings, name, data, workspace)
                else:
                    text = await self._by_server(settings, name, data)
        except TimeoutError:
            raise Unreadable("too_long") from None
        except (OSError, AgentsupError, ConfigError, LimitExceeded) as error:
            _log.warning(f"a recording was not understood: {error}")
            raise Unreadable("unheard") from None
        if not text.strip():
            raise Unreadable("silent")
        return text.strip()

    async def _by_server(self, settings: HearSettings, name: str, data: bytes) -> str:
        key = await self.files.run(self.key, key="voice")
        # Loaded with the first recording: most homes get none.
        http = await self.files.run(_http, key="voice")
        aiohttp: Any = http.aiohttp
        limit_s = settings.timeout_s
        limits = AnswerLimits(
            body_bytes=4 * MIB,
            connect_s=min(10.0, limit_s),
            idle_s=limit_s,
            total_s=limit_s,
        )
        form = aiohttp.FormData()
        form.add_field("model", settings.hear_model)
        form.add_field("response_format", "json")
        if settings.language:
            form.add_field("language", settings.language)
        form.add_field("file", data, filename=Path(name).name, content_type=_mime(name))
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        url = f"{settings.hear_url}/audio/transcriptions"
        connector = aiohttp.TCPConnector(ssl=await tls.loaded())
        try:
            async with (
                http.new_session(limits, connector=connector) as session,
                session.post(url, data=form, headers=headers, allow_redirects=False) as response,
            ):
                content = await http.whole(response, limits)
                status = response.status
        except aiohttp.ClientError as error:
            raise OSError(
                0, f"{settings.hear_url} can't be reached: {type(error).__name__}"
            ) from None
        if status != 200:
            raise OSError(0, f"{settings.hear_url} answered with status {status}")
        try:
            return str((await compute(partial(json.loads, content), key="voice"))["text"])
        except (ValueError, KeyError, TypeError):
            raise OSError(0, f"{settings.hear_url} sent no text") from None

    async def _by_program(
        self, settings: HearSettings, name: str, data: bytes, workspace: Path
    ) -> str:
        home = exec_home(workspace, "")
        env = child_env(_NAMES, {"HOME": str(home)}, source=self.environ)
        key = workspace.parent.name
        folder = GuardedFolder(home)
        # The program gets a copy at a path of ours: the agent chose neither its name nor its place.
        copy = f"voice-{hashlib.sha256(data).hexdigest()[:16]}{Path(name).suffix.lower()[:6]}"

        def prepare() -> str:
            folder.make(mode=0o700)
            folder.write(copy, data, mode=0o600)
            found = shutil.which(settings.hear_command[0], path=env.get("PATH", os.defpath))
            if found is None:
                raise FileNotFoundError(0, f"there is no program {settings.hear_command[0]}")
            return found

        remove = partial(folder.remove, copy)
        fencing = self.fencing()
        try:
            program = await self.files.run(prepare, key=key)
            argv = [each.replace("{file}", str(home / copy)) for each in settings.hear_command[1:]]
            rules = fencing.around((str(home),), files=self.files, key=key)
            async with (
                rules as fence,
                await ProcessGroup.spawn(
                    [program, *argv], env=env, cwd=str(home), gains_rights=False, fence=fence
                ) as group,
            ):
                out = await group.communicate(limit_bytes=_OUT_BYTES)
        finally:
            await self.files.run(remove, key=key)
        if out.code:
            raise OSError(0, f"{settings.hear_command[0]} ended with code {out.code}")
        return out.stdout.decode("utf-8", "replace")


def _http() -> Any:
    module = importlib.import_module("agentsup.kit.outbound.aiohttp_client")
    importlib.import_module("aiohttp")
    return module


def _mime(name: str) -> str:
    ending = Path(name).suffix.lower()
    return {".mp3": "audio/mpeg", ".m4a": "audio/mp4", ".wav": "audio/wav"}.get(ending, "audio/ogg")


def minutes_of(data: bytes) -> float:
    """The duration of a recording in Ogg Opus, by its last page; 0 for other kinds."""
    at = data.rfind(b"OggS")
    if not data.startswith(b"OggS") or at + 14 > len(data):
        return 0.0
    position: int = struct.unpack_from("<q", data, at + 6)[0]
    return max(0, position) / _OPUS_RATE / 60
