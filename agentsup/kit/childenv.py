"""What of our environment a child process may know: an allow-list, so that no secret slips out."""

import os
from collections.abc import Iterable, Mapping

__all__ = ["BASE_ENV_NAMES", "child_env"]

BASE_ENV_NAMES: tuple[str, ...] = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ", "TERM"),
    *("LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "SSL_CERT_FILE", "SSL_CERT_DIR"),
)
"""What a child may know of our environment unless told more; no secrets live here."""


def child_env(
    names: Iterable[str] = BASE_ENV_NAMES,
    extra: Mapping[str, str] | None = None,
    *,
    source: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The environment for a child: the listed `names` of ours (or of `source`) plus `extra`."""
    ours = os.environ if source is None else source
    return {name: ours[name] for name in names if name in ours} | dict(extra or {})
