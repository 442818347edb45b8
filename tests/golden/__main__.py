"""Writes the recorded outputs anew: ``python -m tests.golden``. Read the difference before a commit."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import tempfile
from pathlib import Path

from tests.golden.surfaces import FOLDER, TERMINAL, record


def write() -> None:
    """Record all surfaces and write their files."""
    os.environ.update(TERMINAL)
    logging.disable(logging.CRITICAL)  # what is logged is no answer
    with tempfile.TemporaryDirectory(prefix="agentsup-golden-") as folder:
        for name, text in asyncio.run(record(Path(folder) / "home")).items():
            (FOLDER / name).write_text(text, encoding="utf-8")
            print(f"{name}: {len(text.splitlines())} lines", file=sys.stderr)


if __name__ == "__main__":
    write()
