"""Marks modules that are to run at their first use only, before anything imports one of them.

It is imported first, for its effect. What each saves is in docs/decisions/0060.
"""

from __future__ import annotations

import os
from importlib import import_module

from agentsup.kit.loading import hidden, late

for _module in (
    *("aiohttp", "structlog", "watchfiles", "anyio", "yaml"),
    *("idna", "attr", "attr.validators", "attr.converters", "attr.filters"),
    # Imported by modules of which we use other parts.
    *("pickle", "zipfile", "lzma", "bz2", "calendar", "csv", "difflib"),
):
    late(_module)
# Imported for one name that the daemon hardly ever uses, or never.
late("argparse", "ArgumentParser")
late("email.policy", "HTTP")
late("html", "escape")
late("importlib.metadata", "entry_points")
late("urllib.request", "getproxies", "proxy_bypass")
late("aiohttp.web_fileresponse", "FileResponse")
# Else pydantic reads about each installed package whether it is a plugin, which none of ours is.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
with hidden("frozenlist._frozenlist"):  # the list in C brings the library of C++
    import_module("frozenlist")
