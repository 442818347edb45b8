"""Reading the declared files of a home in the daemon: a file that hangs gives a finding."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial

from agentsup.config.agents_file import MAX_BYTES
from agentsup.config.files import ConfigFiles
from agentsup.config.findings import refuse_file
from agentsup.config.home import Home
from agentsup.config.snapshot import Check, ConfigSnapshot, Overrides, load
from agentsup.kit.pool import PoolTimeout

NAMED_S = 30.0
"""The time limit in seconds for all files that the declared ones name: of secrets, of roles."""


async def read_config(
    files: ConfigFiles,
    home: Home,
    overrides: Overrides | None = None,
    *,
    previous: ConfigSnapshot | None = None,
    is_start: bool = False,
    checks: Sequence[Check] = (),
    environ: Mapping[str, str] | None = None,
) -> ConfigSnapshot:
    """``load`` without blocking the loop. Raises ``ConfigErrors``, also for a file that does not
    answer in time."""
    content: dict[str, bytes | OSError] = {}
    for path in (home.config_toml, home.agents_json):
        try:
            content[path.name] = await files.read(path, MAX_BYTES)
        except OSError as error:
            content[path.name] = error
    step = partial(
        load,
        home,
        overrides,
        previous=previous,
        content=content,
        is_start=is_start,
        checks=checks,
        environ=environ,
    )
    # The key depends on the declared content, since that names the other files: a corrected file
    # may name none that hangs.
    digest = hashlib.sha256(repr(sorted(content.items())).encode()).hexdigest()
    try:
        return await files.run(step, key=f"declared {digest}", limit_s=NAMED_S)
    except PoolTimeout:
        message = f"a file that it names (file:…) or a role did not answer within {NAMED_S:g} s"
        refuse_file(home.agents_json.name, message)
