"""The environment of child processes: an allow-list, so that no secret is passed on."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from agentsup.kit.outbound import proxy

BASE_ENV_NAMES: tuple[str, ...] = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ", "TERM"),
    *("LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "SSL_CERT_FILE", "SSL_CERT_DIR"),
)
"""The variables of our environment that a child gets by default; none of them holds a secret."""


def child_env(
    names: Iterable[str] = BASE_ENV_NAMES,
    extra: Mapping[str, str] | None = None,
    *,
    source: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The environment for a child: ``names`` and the proxies of ours (or of ``source``), plus
    ``extra``."""
    ours = os.environ if source is None else source
    found = {name: ours[name] for name in names if name in ours}
    return found | proxy.for_programs(ours) | dict(extra or {})
