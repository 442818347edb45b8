"""``agentsup``: runs one command line; every failure is one sentence and an exit code.

Exit codes: 0 done, 1 failed (a sentence on stderr), 2 wrong usage; ``run`` ends with the daemon's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from agentsup.cli.connect.failure import CommandFailed
from agentsup.config import Home
from agentsup.kit.loading import loading
from agentsup.kit.own_command import naming, with_home
from agentsup.kit.terminal import clean
from agentsup.model.errors import AgentsupError


def hoisted(arguments: Sequence[str]) -> list[str]:
    """The same line with ``--home`` moved to the front, wherever it was before a ``--``."""
    found: list[str] = []
    rest: list[str] = []
    waiting = list(arguments)
    while waiting:
        word = waiting.pop(0)
        if word == "--":
            rest += [word, *waiting]
            break
        if word == "--home" and waiting:
            found = [word, waiting.pop(0)]
        elif word.startswith("--home="):
            found = ["--home", word.removeprefix("--home=")]
        else:
            rest.append(word)
    return found + rest


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command line and end the process with its exit code."""
    line = hoisted(sys.argv[1:] if arguments is None else arguments)
    given = line[1] if line[:1] == ["--home"] else None
    with naming(Home.resolve(given).root, Home.resolve().root):
        try:
            _run(line)
        except CommandFailed as failure:
            _end(str(failure), failure.exit_code)
        except AgentsupError as error:
            _end(str(error), 1)
        except BrokenPipeError:
            # The reader of our output has gone; nothing more can be written to it, not even at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)
        except Exception:  # noqa: BLE001
            # supervision boundary: the traceback of a defect may quote anybody's text
            import traceback

            sys.stderr.write(clean(traceback.format_exc()))
            sys.exit(1)


def _run(line: list[str]) -> None:
    with loading():
        from agentsup.cli.output.reads import read_quickly

    code = read_quickly(line)
    if code is not None:
        sys.exit(code)
    with loading():
        from agentsup.cli.app import app

    app(line, prog_name="agentsup")


def _end(text: str, exit_code: int) -> None:
    if text:
        print(f"agentsup: {clean(with_home(text))}", file=sys.stderr)
    sys.exit(exit_code)
