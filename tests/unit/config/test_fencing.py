"""``[fence]``: what is closed, and clear words for what can't be read."""

from __future__ import annotations

import pytest

from agentsup.config.settings import parse_settings
from agentsup.model.errors import ConfigErrors


def test_by_default_it_stands_where_it_can_and_closes_the_home_only() -> None:
    fence = parse_settings(None).settings.fence
    assert (fence.mode, fence.paths({"HOME": "/home/ann"})) == ("auto", ())
    assert fence.writable_paths({"HOME": "/home/ann"}) == ("/tmp",)
    assert fence.writable_paths({"TMPDIR": "/var/x"}) == ("/var/x",)


def test_places_are_whole_paths_or_begin_at_the_users_home() -> None:
    content = b'[fence]\nmode = "required"\nclosed = ["~/.ssh", "/srv/keys"]\n'
    fence = parse_settings(content).settings.fence
    assert fence.mode == "required"
    assert fence.paths({"HOME": "/home/ann"}) == ("/home/ann/.ssh", "/srv/keys")


def test_places_that_programs_may_write_come_beside_temporary_files() -> None:
    fence = parse_settings(b'[fence]\nwritable = ["~/projects"]\n').settings.fence
    assert fence.writable_paths({"HOME": "/home/ann"}) == ("/tmp", "/home/ann/projects")


def test_sockets_that_may_be_reached_are_named_in_the_same_way() -> None:
    content = b'[fence]\nsockets = ["/run/docker.sock", "~/.x/s"]\n'
    fence = parse_settings(content).settings.fence
    assert fence.socket_paths({"HOME": "/home/ann"}) == ("/run/docker.sock", "/home/ann/.x/s")


@pytest.mark.parametrize(
    "content, said",
    [
        (b'[fence]\nclosed = ["keys"]\n', "whole path"),
        (b'[fence]\nmode = "on"\n', "required"),
        (b'[fence]\nclose = ["/srv"]\n', "closed"),
    ],
)
def test_what_can_not_be_meant_is_refused_with_its_place(content: bytes, said: str) -> None:
    with pytest.raises(ConfigErrors) as caught:
        parse_settings(content)
    assert "config.toml:2" in str(caught.value)
    assert said in str(caught.value)
