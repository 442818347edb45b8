"""A daemon under which one directory does not answer, as a network mount whose server is away.

Run as ``python -m tests.support.stuck_files``, with what ``agentsup`` takes. Whoever opens or
looks at something below ``TEST_STUCK`` waits for as long as the process lives.
"""

from __future__ import annotations

import os
import threading
from typing import Any


def main() -> None:
    """Make the directory hang, then be the command."""
    stuck = os.environ["TEST_STUCK"]

    def hangs(real: Any) -> Any:
        def step(path: Any, *args: Any, **options: Any) -> Any:
            is_named = isinstance(path, str | os.PathLike) and options.get("dir_fd") is None
            is_itself = bool(args) and bool(args[0] & os.O_NOFOLLOW)
            if is_named and not is_itself and options.get("follow_symlinks", True):
                where = os.path.realpath(path)
                if where == stuck or where.startswith(stuck + os.sep):
                    threading.Event().wait()
            return real(path, *args, **options)

        return step

    os.open = hangs(os.open)
    os.stat = hangs(os.stat)
    from agentsup.cli.main import main as command  # after the change

    command()


if __name__ == "__main__":
    main()
