"""Archives: what goes in comes out; a hostile or broken one is refused before anything is written."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from agentsup.kit.archive import contents as archive_contents
from agentsup.kit.archive import packing, unpacking
from agentsup.kit.archive.contents import FILES, MANIFEST, ArchiveRefused, link_stays_inside
from agentsup.kit.archive.packing import packed
from agentsup.kit.archive.unpacking import check, unpack

LIMIT = 50_000_000


def pack(root: Path, target: Path, **options: Any) -> archive_contents.Contents:
    target.touch()
    with packed(target) as packer:
        packer.tree(root, **options)
        return packer.finish({"kind": "home"})


def unpacked(file: Path, into: Path) -> Path:
    unpack(file, check(file, limit=LIMIT), into)
    return into


def seen(root: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for path in root.rglob("*"):
        known = path.lstat()
        what: object = str(path.readlink()) if path.is_symlink() else known.st_mode & 0o777
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        changed = 0 if path.is_symlink() else known.st_mtime_ns
        found[str(path.relative_to(root))] = (what, content, changed)
    return found


def a_tree(root: Path) -> Path:
    (root / "agents" / "main").mkdir(parents=True)
    (root / "agents" / "main" / "note.md").write_text("née")
    (root / "agents" / "main" / ("long " * 40)).write_text("a long name")
    os.close(os.open(os.fsencode(root) + b"/agents/not-utf8-\xff", os.O_CREAT, 0o600))
    (root / "api.token").write_text("secret")
    (root / "api.token").chmod(0o600)
    (root / "empty").mkdir(mode=0o500)
    (root / "agents" / "link").symlink_to("main/note.md")
    (root / "large").write_bytes(os.urandom(3_000_000))
    return root


def test_what_goes_in_comes_out(tmp_path: Path) -> None:
    root = a_tree(tmp_path / "root")
    written = pack(root, tmp_path / "a.tar.gz")
    assert not written.left_out
    before = seen(root)
    before["empty"] = (0o700, *before["empty"][1:])  # type: ignore[index]  # its owner may write
    assert seen(unpacked(tmp_path / "a.tar.gz", tmp_path / "out")) == before


def test_what_leads_out_or_can_not_be_kept_is_left_out_and_told(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "agents").mkdir(parents=True)
    (tmp_path / "elsewhere").write_text("of the person")
    (root / "config.toml").symlink_to(tmp_path / "elsewhere")
    (root / "agents" / "planted").symlink_to(tmp_path / "elsewhere")
    (root / "agents" / "up").symlink_to("../../elsewhere")
    os.mkfifo(root / "agents" / "pipe")
    written = pack(root, tmp_path / "a.tar.gz", follows=lambda path: path == "config.toml")
    assert [each.partition(":")[0] for each in written.left_out] == [
        "agents/pipe",
        "agents/planted",
        "agents/up",
    ]
    out = unpacked(tmp_path / "a.tar.gz", tmp_path / "out")
    assert (out / "config.toml").read_text() == "of the person"
    assert not (out / "config.toml").is_symlink()
    assert list((out / "agents").iterdir()) == []


def test_a_file_that_is_too_large_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "MAX_FILE", 100)
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "small").write_bytes(b"x" * 100)
    (tmp_path / "root" / "large").write_bytes(b"x" * 101)
    written = pack(tmp_path / "root", tmp_path / "a.tar.gz")
    assert [each.path for each in written.entries] == ["small"]
    assert "large" in written.left_out[0]


def test_a_file_that_shrinks_while_it_is_read_does_no_harm(tmp_path: Path) -> None:
    file = tmp_path / "a.tar.gz"
    file.touch()
    with packed(file) as packer:
        packer.file("shrunk", io.BytesIO(b"12345"), mode=0o600, changed_ns=0, size=100)
        packer.file("grown", io.BytesIO(b"1234567890"), mode=0o600, changed_ns=0, size=5)
        packer.finish({})
    out = unpacked(file, tmp_path / "out")
    assert (out / "shrunk").read_bytes() == (out / "grown").read_bytes() == b"12345"


@pytest.mark.parametrize(
    "path, target, stays",
    [
        ("a", "b", True),
        ("d/a", "../b", True),
        ("d/a", "../../b", False),
        ("a", "/etc/passwd", False),
        ("d/e/a", "x/../../../b", False),
        ("d/e/a", "x/../b", False),
        ("a", "", False),
    ],
)
def test_a_link_stays_inside_whatever_it_passes(path: str, target: str, *, stays: bool) -> None:
    assert link_stays_inside(path, target) is stays


# -- archives of others ------------------------------------------------------------------------------

Row = list[Any]


def row(path: str, content: bytes = b"x", kind: str = "file", last: str | None = None) -> Row:
    digest = hashlib.sha256(content).hexdigest() if kind == "file" else ""
    return [path, kind, 0o600, 0, len(content) if kind == "file" else 0, last or digest]


def member(name: str, content: bytes = b"x", kind: bytes = tarfile.REGTYPE, link: str = "") -> Any:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    info.size = len(content) if kind == tarfile.REGTYPE else 0
    return info, content


def forged(
    path: Path, rows: Iterable[Row], members: Iterable[Any], *, last: Iterable[Any] = ()
) -> Path:
    document = {"format": 1, "left_out": [], "entries": list(rows)}
    with tarfile.open(path, "w:gz") as tar:
        manifest = member(MANIFEST, json.dumps(document).encode())
        for info, content in (*members, manifest, *last):
            tar.addfile(info, io.BytesIO(content))
    return path


def of_names(path: Path, name: str) -> Path:
    return forged(path, [row(name)], [member(FILES + name)])


HOSTILE: dict[str, tuple[Callable[[Path], Path], str]] = {
    "up": (lambda p: of_names(p, "../evil"), "leads out"),
    "up inside": (lambda p: of_names(p, "a/../../evil"), "leads out"),
    "absolute": (lambda p: of_names(p, "/etc/evil"), "leads out"),
    "of a person": (lambda p: of_names(p, "~/evil"), "leads out"),
    "not plain": (lambda p: of_names(p, "./a"), "no plain path"),
    "no folder": (lambda p: of_names(p, "a/b"), "in no folder"),
    "a link out": (
        lambda p: forged(
            p,
            [row("l", kind="link", last="/etc")],
            [member(FILES + "l", b"", tarfile.SYMTYPE, "/etc")],
        ),
        "leads out",
    ),
    "through a link": (
        lambda p: forged(
            p,
            [row("l", kind="link", last="d"), row("d", kind="folder"), row("l/f")],
            [
                member(FILES + "l", b"", tarfile.SYMTYPE, "d"),
                member(FILES + "d", b"", tarfile.DIRTYPE),
                member(FILES + "l/f"),
            ],
        ),
        "in no folder",
    ),
    "a device": (
        lambda p: forged(p, [row("d")], [member(FILES + "d", b"", tarfile.CHRTYPE)]),
        "neither file nor folder nor link",
    ),
    "a hard link": (
        lambda p: forged(p, [row("d")], [member(FILES + "d", b"", tarfile.LNKTYPE, "/etc/passwd")]),
        "neither file nor folder nor link",
    ),
    "twice": (
        lambda p: forged(p, [row("a")], [member(FILES + "a"), member(FILES + "a", b"y")]),
        "unexpected",
    ),
    "twice in the manifest": (
        lambda p: forged(p, [row("a"), row("a")], [member(FILES + "a")]),
        "twice",
    ),
    "not in the manifest": (
        lambda p: forged(p, [row("a")], [member(FILES + "a"), member(FILES + "b")]),
        "not what its manifest says",
    ),
    "missing": (lambda p: forged(p, [row("a")], []), "not what its manifest says"),
    "other content": (
        lambda p: forged(p, [row("a")], [member(FILES + "a", b"y")]),
        "not what its manifest says",
    ),
    "beside": (lambda p: forged(p, [], [member("evil")]), "unexpected"),
    "after the manifest": (
        lambda p: forged(p, [], [], last=[member(FILES + "a")]),
        "after its manifest",
    ),
    "a wrong manifest": (lambda p: forged(p, [["a", "file", -1, 0, 0, ""]], []), "can't be read"),
    "no digest": (lambda p: forged(p, [["a", "file", 1, 0, 0, ""]], []), "no digest"),
    "too large": (
        lambda p: forged(
            p, [row("a", b"0" * LIMIT)], [member(FILES + "a", b"0" * (LIMIT + 300_000_000))]
        ),
        "no room",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_refused_and_nothing_is_written(tmp_path: Path, name: str) -> None:
    make, why = HOSTILE[name]
    file = make(tmp_path / "hostile.tar.gz")
    with pytest.raises(ArchiveRefused, match=why):
        check(file, limit=LIMIT)
    assert [each.name for each in tmp_path.iterdir()] == [file.name]


def test_a_header_that_claims_to_be_huge_is_not_read_into_memory(tmp_path: Path) -> None:
    info = tarfile.TarInfo("pax")
    info.type, info.size = tarfile.XHDTYPE, 8**11 - 1
    file = tmp_path / "hostile.tar.gz"
    file.write_bytes(gzip.compress(info.tobuf(tarfile.USTAR_FORMAT)))
    with pytest.raises(ArchiveRefused, match="header that is too long"):
        check(file, limit=LIMIT)


def test_headers_without_end_are_not_read_into_memory(tmp_path: Path) -> None:
    """Each of them is small; one says that another follows."""
    info = tarfile.TarInfo(FILES + "a")
    info.type = tarfile.GNUTYPE_SPARSE
    head = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    head[482] = 1  # more of the map of the file follows
    head[148:156] = f"{256 + sum(head[:148]) + sum(head[156:512]):06o}\0 ".encode()
    piece = bytearray(b"00000000001\0" * 42 + b"\1" + bytes(7))
    file = tmp_path / "hostile.tar.gz"
    file.write_bytes(gzip.compress(bytes(head[:512]) + bytes(piece) * 2_000))
    with pytest.raises(ArchiveRefused, match="header that is too long"):
        check(file, limit=LIMIT)


def test_names_that_no_manifest_could_list_are_not_kept_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpacking, "MAX_MANIFEST", 1_000)
    members = [member(FILES + f"{number}-" + "x" * 200) for number in range(5)]
    file = forged(tmp_path / "hostile.tar.gz", [], members)
    with pytest.raises(ArchiveRefused, match="names in it"):
        check(file, limit=LIMIT)


def test_another_format_and_foreign_files_are_refused(tmp_path: Path) -> None:
    newer = tmp_path / "newer.tar.gz"
    with tarfile.open(newer, "w:gz") as tar:
        info, content = member(MANIFEST, json.dumps({"format": 2}).encode())
        tar.addfile(info, io.BytesIO(content))
    with pytest.raises(ArchiveRefused, match="newer"):
        check(newer, limit=LIMIT)
    for name, data in (("empty", b""), ("text", b"hello"), ("zip", b"PK\x03\x04" + b"0" * 600)):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ArchiveRefused):
            check(tmp_path / name, limit=LIMIT)


def _unpacks_to(data: bytes, content: bytes) -> bool:
    try:
        return gzip.decompress(data) == content
    except (OSError, EOFError, zlib.error):
        return False


def test_an_archive_that_is_cut_off_or_damaged_anywhere_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "a").write_bytes(os.urandom(5000))
    (root / "b").write_text("text " * 1000)
    pack(root, tmp_path / "a.tar.gz")
    whole = (tmp_path / "a.tar.gz").read_bytes()
    broken = tmp_path / "broken"
    for at in range(0, len(whole), len(whole) // 40):
        broken.write_bytes(whole[:at])
        with pytest.raises(ArchiveRefused):
            check(broken, limit=LIMIT)
        if at >= 10:  # before it: flags and time of the compression, which mean nothing here
            damaged = whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :]
            if _unpacks_to(damaged, gzip.decompress(whole)):
                continue  # zeros from nearer by are the same zeros
            broken.write_bytes(damaged)
            with pytest.raises(ArchiveRefused):
                check(broken, limit=LIMIT)


def test_an_archive_that_is_exchanged_after_its_check_is_refused(tmp_path: Path) -> None:
    for name, text in (("one", "first"), ("two", "other")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_text(text)
        pack(tmp_path / name, tmp_path / f"{name}.tar.gz")
    found = check(tmp_path / "one.tar.gz", limit=LIMIT)
    with pytest.raises(ArchiveRefused, match="changed"):
        unpack(tmp_path / "two.tar.gz", found, tmp_path / "out")
