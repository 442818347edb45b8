"""Lives that are forks of a loaded process see what lives see that load everything themselves."""

from __future__ import annotations

import errno
import json
import os
import signal
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon_process import DaemonProcess, write_home
from tests.support.fork_server import Cage
from tests.support.preloaded_process import DAEMON

pytestmark = pytest.mark.process

CAGE = Cage(memory=4 * 1024**3, descriptors=128, file=1024**2)
LOOK = """
import gc, json, os, resource, signal, sys, tempfile, threading, time
from agentsup.kit import faults
def grown():
    "What a file says that grows beyond its bound."
    with open(os.environ["AGENTSUP_HOME_OF_TEST"] + "/grown", "wb") as file:
        try:
            file.truncate(1024**2 + 1)
        except OSError as error:
            return error.strerror
print(json.dumps({
    "argv": sys.argv,
    "whole line": sys.orig_argv[1:],
    "environment": {n: v for n, v in os.environ.items() if n != "LC_CTYPE"},
    "name": __name__,
    "leads its session": os.getsid(0) == os.getpid() == os.getpgrp(),
    "files": [os.readlink(f"/proc/self/fd/{n}") for n in range(3)],
    "signals": [str(signal.getsignal(s)) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)],
    "blocked": list(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    "collects": gc.isenabled(),
    "threads": threading.active_count(),
    "point": faults._plan._kill_at,
    "optimised": sys.flags.optimize,
    "umask": os.umask(0o22),
    "folder": os.getcwd(),
    "cage": [resource.getrlimit(n) for n in (resource.RLIMIT_AS, resource.RLIMIT_NOFILE,
                                             resource.RLIMIT_FSIZE)],
    "grows": grown(),
    "zone": [time.tzname, time.localtime(0).tm_hour],
    "temporary": tempfile.gettempdir(),
}))
sys.exit(7)
"""


async def seen(home: Path, loaded: tuple[str, ...], **env: str) -> list[dict[str, Any]]:
    """What two lives one after the other say of themselves."""
    daemon = DaemonProcess(home, command=("-c", LOOK), loaded=loaded, cage=CAGE)
    daemon.port = 8799  # both are to be told the same
    daemon.output.unlink(missing_ok=True)
    try:
        for life in ("first", "second"):
            daemon.launch(WHICH=life, AGENTSUP_HOME_OF_TEST=str(home), **env)
            assert await daemon.ended() == 7, daemon.tail()
    finally:
        await daemon.close()
    return [json.loads(line) for line in daemon.output.read_text().splitlines()]


async def test_a_forked_life_sees_what_a_loading_one_sees(tmp_path: Path) -> None:
    home = write_home(tmp_path / "home", [])
    env = {"AGENTSUP_FAULT": "turn.completed:2", "TZ": "XYZ-7", "TMPDIR": str(tmp_path)}
    itself = await seen(home, (), **env)
    forked = await seen(home, DAEMON, **env)
    for told in (*itself, *forked):
        told["environment"].pop("NOTIFY_SOCKET")
    assert itself[0]["point"] == "turn.completed"
    assert itself[0]["environment"]["WHICH"] == "first"
    assert itself[1]["environment"]["WHICH"] == "second"
    assert itself[0]["cage"] == [[each, each] for each in astuple(CAGE)]
    assert itself[0]["zone"] == [["XYZ", "XYZ"], 7]
    assert itself[0]["grows"] == os.strerror(errno.EFBIG)
    for one, other in zip(itself, forked, strict=True):
        assert {key: told for key, told in other.items() if told != one[key]} == {}
        assert one.keys() == other.keys()


async def test_a_life_is_killed_alone_and_the_next_one_works(tmp_path: Path) -> None:
    rules = [{"match": "hello", "steps": [{"say": "here"}]}]
    home = write_home(tmp_path / "home", [{"name": "main"}], rules)
    daemon = DaemonProcess(home, loaded=DAEMON)
    pids = []
    try:
        for _ in range(3):
            await daemon.start()
            pids.append(daemon.pid)
            sent = await daemon.send("main", "hello")
            assert (await daemon.result(sent))["text"] == "here"
            daemon.kill()
            assert await daemon.ended() == -signal.SIGKILL
        daemon.loaded = ()
        await daemon.start()
        assert await daemon.stop() == 0
    finally:
        await daemon.close()
    assert len(set(pids)) == 3
