"""Zones by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentsup.model.errors import BadRequest
from agentsup.tasks.occurrences import machine_zone, zone_of


def linked(tmp_path: Path, target: str) -> Path:
    link = tmp_path / "localtime"
    link.symlink_to(target)
    return link


@pytest.mark.parametrize(
    "tz,target,name",
    [
        ("America/New_York", "/usr/share/zoneinfo/Europe/Zurich", "America/New_York"),
        (":Asia/Tokyo", "/usr/share/zoneinfo/Europe/Zurich", "Asia/Tokyo"),
        ("", "/usr/share/zoneinfo/Europe/Berlin", "Europe/Berlin"),
        ("CET-1CEST", "/usr/share/zoneinfo/Etc/UTC", "Etc/UTC"),
        ("", "/usr/share/zoneinfo/no/such", "UTC"),
        ("", "/somewhere/else", "UTC"),
    ],
)
def test_the_machines_zone(tmp_path: Path, tz: str, target: str, name: str) -> None:
    found = machine_zone({"TZ": tz}, linked(tmp_path, target))
    assert zone_of(found).key == found
    assert found == name


def test_a_machine_that_moves_is_seen(tmp_path: Path) -> None:
    link = linked(tmp_path, "/usr/share/zoneinfo/Europe/Berlin")
    assert machine_zone({}, link) == "Europe/Berlin"
    (tmp_path / "new").symlink_to("/usr/share/zoneinfo/Asia/Tokyo")
    (tmp_path / "new").rename(link)
    assert machine_zone({}, link) == "Asia/Tokyo"


def test_a_machine_without_a_zone_is_in_utc(tmp_path: Path) -> None:
    assert machine_zone({}, tmp_path / "localtime") == "UTC"


@pytest.mark.parametrize("name", ["", " ", "localtime", "posix/UTC", "/etc/passwd", "CEST"])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(BadRequest) as refused:
        zone_of(name)
    assert refused.value.facts["field"] == "zone"
