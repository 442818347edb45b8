"""What is known of a daemon that something else restarts; its environment is closed to us."""

import json
import os
from pathlib import Path

import pytest

from agentsup.cli.background import refuse_if_supervised
from agentsup.cli.failure import Failed
from agentsup.cli.locate import Place
from agentsup.config.home import Home


def place(root: Path, **facts: object) -> Place:
    home = Home(root)
    home.create()
    written = {"pid": os.getpid(), "url": "http://127.0.0.1:1", **facts}
    home.daemon_json.write_text(json.dumps(written))
    return Place(home)


def test_systemd_restarts_what_it_runs(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="systemctl --user restart"):
        refuse_if_supervised(place(tmp_path, systemd=True))
    if os.getsid(0) != 1:
        refuse_if_supervised(place(tmp_path, systemd=False))
        refuse_if_supervised(place(tmp_path))
