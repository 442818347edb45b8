"""What is known of a daemon that something else restarts; its environment is closed to us."""

import json
import os
from pathlib import Path

from agentsup.cli.background import is_supervised
from agentsup.cli.locate import Place
from agentsup.config.home import Home


def place(root: Path, **facts: object) -> Place:
    home = Home(root)
    home.create()
    written = {"pid": os.getpid(), "url": "http://127.0.0.1:1", **facts}
    home.daemon_json.write_text(json.dumps(written))
    return Place(home)


def test_systemd_restarts_what_it_runs(tmp_path: Path) -> None:
    assert is_supervised(place(tmp_path, systemd=True))
    if os.getsid(0) != 1:
        assert not is_supervised(place(tmp_path, systemd=False))
        assert not is_supervised(place(tmp_path))
