"""The declared files of a home, read by the daemon: whatever hangs is a finding, and no wait."""

from __future__ import annotations

import hashlib
from functools import partial

from agentsup.config.agents_file import MAX_BYTES
from agentsup.config.files import ConfigFiles
from agentsup.config.findings import Finding, Severity
from agentsup.config.home import Home
from agentsup.config.snapshot import ConfigSnapshot, Overrides, load
from agentsup.kit.pool import NoAnswer
from agentsup.model.errors import ConfigErrors

__all__ = ["NAMED_S", "read_config"]

NAMED_S = 30.0
"""For all files that the declared ones name: of secrets, of roles."""


async def read_config(
    files: ConfigFiles,
    home: Home,
    overrides: Overrides | None = None,
    *,
    previous: ConfigSnapshot | None = None,
    is_start: bool = False,
) -> ConfigSnapshot:
    """``load`` without blocking and without waiting for what does not answer. Raises
    ``ConfigErrors``, also for that."""
    content: dict[str, bytes | OSError] = {}
    for path in (home.config_toml, home.agents_json):
        try:
            content[path.name] = await files.read(path, MAX_BYTES)
        except OSError as error:
            content[path.name] = error
    step = partial(load, home, overrides, previous=previous, content=content, is_start=is_start)
    # What is declared says which other files are read: other words may name none that hangs.
    digest = hashlib.sha256(repr(sorted(content.items())).encode()).hexdigest()
    try:
        return await files.run(step, key=f"declared {digest}", limit_s=NAMED_S)
    except NoAnswer:
        message = f"a file that it names (file:…) or a role did not answer within {NAMED_S:g} s"
        finding = Finding(Severity.ERROR, message, home.agents_json.name, 1, 1, "(file)")
        raise ConfigErrors((finding.as_error(),)) from None
