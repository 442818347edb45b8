"""What is known of a daemon that something else restarts; its environment is closed to us."""

from __future__ import annotations

import json
import os
from pathlib import Path

from agentsup.cli.commands.background import is_supervised
from agentsup.cli.connect.locate import DaemonLocation
from agentsup.config.home import Home


def place(root: Path, **facts: object) -> DaemonLocation:
    home = Home(root)
    home.create()
    written = {"pid": os.getpid(), "url": "http://127.0.0.1:1", **facts}
    home.daemon_json.write_text(json.dumps(written))
    return DaemonLocation(home)


def test_systemd_restarts_what_it_runs(tmp_path: Path) -> None:
    assert is_supervised(place(tmp_path, systemd=True))
    if os.getsid(0) != 1:
        assert not is_supervised(place(tmp_path, systemd=False))
        assert not is_supervised(place(tmp_path))
