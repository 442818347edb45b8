"""Transcription of recordings, by ``[voice]`` as it is now."""

from __future__ import annotations

from collections.abc import Callable

from agentsup.agents.media import Hearing
from agentsup.config import ConfigSnapshot, resolve
from agentsup.daemon.runtime.boot_context import BootContext
from agentsup.daemon.runtime.fencing import fencing_of
from agentsup.model.secret import Secret


def hearing_of(boot: BootContext, current: Callable[[], ConfigSnapshot]) -> Hearing:
    """The service; its key is looked up for each recording, and masked in all output."""

    def key() -> str:
        given = current().settings.voice.hear_key
        if not given:
            return ""
        found = resolve(Secret(given), base=boot.home.root, environ=boot.environ).reveal()
        boot.redactor.add_all([found])
        return found

    return Hearing(
        settings=lambda: current().settings.voice,
        key=key,
        fencing=fencing_of(boot.home.root, boot.environ, current),
        environ=boot.environ,
        files=boot.files,
    )
