"""QR codes: what is drawn is the code, it fits a phone's terminal, and nothing loads it unasked."""

from __future__ import annotations

import subprocess
import sys
from xml.etree import ElementTree as ET

import segno

from agentsup.kit import qr

LINK = "http://192.168.100.200:8799/#code=" + "abcdefghijklmnopqrstuvwxyz0123456789-_ABCDE"
ROWS_OF = {"█": (0, 0), "▀": (0, 1), "▄": (1, 0), " ": (1, 1)}


def test_half_blocks_are_the_code_and_fit_40_columns() -> None:
    drawn = qr.half_blocks(LINK, 40)
    lines = drawn.splitlines()
    assert {len(line) for line in lines} == {35}
    rows = [[ROWS_OF[c][half] for c in line] for line in lines for half in (0, 1)]
    code = segno.make(LINK, error="l", boost_error=False, micro=False)
    wanted = [list(row) for row in code.matrix_iter(border=1)]
    assert rows[: len(wanted)] == wanted


def test_what_has_no_room_is_not_drawn() -> None:
    assert not qr.half_blocks(LINK, 34)
    assert not qr.half_blocks("https://" + "long." * 40 + "example/#code=x", 40)


def test_the_picture_is_one_by_itself() -> None:
    picture = ET.fromstring(qr.svg(LINK))
    assert picture.tag == "{http://www.w3.org/2000/svg}svg"
    assert not [each for each in picture.iter() if each.tag.endswith(("script", "image"))]


def test_the_library_is_loaded_by_the_first_code_only() -> None:
    look = "import sys, agentsup.kit.qr; print('segno' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
