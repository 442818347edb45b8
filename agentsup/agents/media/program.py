"""A program of its own that reads one hostile file: a picture, a PDF or an office document.

It runs as a file, without the package ``agentsup``. Decoders of other people's files have had holes
and bombs, so they never run in the daemon: this process has a limit of memory and of processor
time, and once its libraries are loaded it can open no file, no connection and no other program.

Arguments: the kind, the directories of its libraries, and the limits as JSON. Standard input is the
file. Standard output is one line of JSON, then the pictures that it names by their lengths.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import re
import resource
import sys
import zipfile
from collections.abc import Callable
from typing import Any

MEMORY_BYTES = 768 * 1024 * 1024
CPU_S = 8
FORMATS = ("JPEG", "PNG", "WEBP", "GIF")
MANY_PIXELS = 250_000_000
"""A JPEG is decoded at a fraction of its size, so it may have more pixels than others."""
PIXELS = 50_000_000
MEMBER_BYTES = 20 * 1024 * 1024
"""The longest document inside an office file, unpacked."""
SCANNED_PAGES = 4
"""Pages without text of which the picture is shown."""
QUALITIES = (82, 65, 45)


class Unusable(Exception):
    """The file can't be read; the first argument is the reason, one of the texts ``media.*``."""


Extracted = tuple[dict[str, Any], list[bytes]]


# -- pictures --------------------------------------------------------------------------------------


def picture(data: bytes, limits: dict[str, int]) -> Extracted:
    """The picture as a JPEG of a bounded size; what else the file has, such as a place, is gone."""
    return {}, [_small(io.BytesIO(data), limits)]


def _small(file: io.BytesIO, limits: dict[str, int]) -> bytes:
    from PIL import Image  # noqa: PLC0415 - loaded for pictures alone

    try:
        seen: Image.Image = Image.open(
            file, formats=[each for each in FORMATS if each in Image.OPEN]
        )
        width, height = seen.size
        if width * height > (MANY_PIXELS if seen.format == "JPEG" else PIXELS):
            raise Unusable("too_large")
        ratio = min(1.0, limits["side"] / max(width, height))
        size = (max(1, round(width * ratio)), max(1, round(height * ratio)))
        seen.draft("RGB", size)  # a JPEG is decoded at 1/2, 1/4 or 1/8 in a fraction of the time
        seen.load()
        turned = seen.getexif().get(_ORIENTATION)
    except (Unusable, MemoryError):
        raise
    except Exception:  # noqa: BLE001 - supervision boundary: decoders raise anything
        raise Unusable("broken") from None
    if max(seen.size) > limits["most_side"] or (ratio < 1 and seen.format != "JPEG"):
        mode = seen.mode if seen.mode in {"RGB", "RGBA", "L"} else "RGBA"
        seen = seen.convert(mode).resize(size, Image.Resampling.BILINEAR, reducing_gap=1.5)
    upright = _TURNS.get(turned or 0)
    flat = seen if upright is None else seen.transpose(Image.Transpose(upright))
    if flat.mode not in {"RGB", "L"}:
        white = Image.new("RGB", flat.size, "white")
        flat = flat.convert("RGBA")
        white.paste(flat, mask=flat.getchannel("A"))
        flat = white
    for quality in QUALITIES:
        out = io.BytesIO()
        flat.save(out, "JPEG", quality=quality)
        if out.tell() <= limits["picture_bytes"]:
            return out.getvalue()
    raise Unusable("too_large")


_ORIENTATION = 0x0112
_TURNS = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}
"""By the orientation of a camera, the transposition that puts the picture upright."""


# -- documents -------------------------------------------------------------------------------------


def pdf(data: bytes, limits: dict[str, int]) -> Extracted:
    """The text of the first pages. Pages that only have a picture, as scanned ones, are shown."""
    import pypdf  # noqa: PLC0415 - loaded for documents alone

    try:
        reader = pypdf.PdfReader(io.BytesIO(data), strict=False)
        if reader.is_encrypted and not reader.decrypt(""):
            raise Unusable("locked")
        count = len(reader.pages)
    except (Unusable, MemoryError):
        raise
    except Exception:  # noqa: BLE001 - supervision boundary: any kind of file may be called a PDF
        raise Unusable("broken") from None
    texts: list[str] = []
    pictures: list[bytes] = []
    room, read, missed = limits["chars"], 0, 0
    for page in reader.pages[: limits["pages"]]:
        if room <= 0:
            break
        try:
            text = page.extract_text().strip()
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 - supervision boundary: one page may be broken
            text = ""
            missed += 1
        if not text and len(pictures) < SCANNED_PAGES and (shown := _scanned(page, limits)):
            pictures.append(shown)
        texts.append(text[:room])
        room -= len(text)
        read += 1
    if not any(texts) and not pictures:
        raise Unusable("broken" if missed else "no_text")
    is_cut = read < count or room < 0
    return {"text": _clean("\n\n".join(texts)), "pages": read, "of": count, "cut": is_cut}, pictures


def _scanned(page: Any, limits: dict[str, int]) -> bytes:
    try:
        largest = max(page.images, key=lambda each: len(each.data), default=None)
        return _small(io.BytesIO(largest.data), limits) if largest is not None else b""
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - supervision boundary: such a page has no picture for us
        return b""


_PARAGRAPHS = {
    "docx": ("word/document.xml", ("p",)),
    "odt": ("content.xml", ("p", "h")),
}


def office(data: bytes, limits: dict[str, int]) -> Extracted:
    """The text of a Word or OpenDocument file, paragraph by paragraph."""
    from xml.etree import ElementTree as ET  # noqa: PLC0415 - loaded for documents alone

    try:
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            names = set(packed.namelist())
            member, breaks = next(v for v in _PARAGRAPHS.values() if v[0] in names)
            if packed.getinfo(member).file_size > MEMBER_BYTES:
                raise Unusable("too_large")
            with packed.open(member) as file:
                content = file.read(MEMBER_BYTES + 1)
    except StopIteration:
        raise Unusable("no_text") from None
    except (Unusable, MemoryError):
        raise
    except Exception:  # noqa: BLE001 - supervision boundary: any archive may come under this name
        raise Unusable("broken") from None
    if len(content) > MEMBER_BYTES:
        raise Unusable("too_large")
    if b"<!DOCTYPE" in content or b"<!ENTITY" in content:
        raise Unusable("broken")  # no such program writes one, and entities are bombs
    lines: list[str] = []
    room = limits["chars"]
    try:
        for _, element in ET.iterparse(io.BytesIO(content)):  # noqa: S314 - see above
            if element.tag.rpartition("}")[2] in breaks:
                line = "".join(element.itertext())
                lines.append(line[:room])
                room -= len(line)
                element.clear()
            if room <= 0:
                break
    except ET.ParseError:
        raise Unusable("broken") from None
    text = _clean("\n".join(lines))
    if not text.strip():
        raise Unusable("no_text")
    return {"text": text, "cut": room <= 0}, []


def _clean(text: str) -> str:
    return re.sub(r"\n{3,}", "\n\n", text.encode("utf-8", "replace").decode()).strip()


# -- the process -----------------------------------------------------------------------------------

_PLUGINS = {
    "JPEG": "JpegImagePlugin",
    "PNG": "PngImagePlugin",
    "WEBP": "WebPImagePlugin",
    "GIF": "GifImagePlugin",
}
KINDS: dict[str, Callable[[bytes, dict[str, int]], Extracted]] = {
    **dict.fromkeys(FORMATS, picture),
    "pdf": pdf,
    "office": office,
}


def load(kind: str) -> None:
    """Load what this kind needs, by reading a tiny one; afterwards no file can be opened."""
    if kind == "office":
        tiny = io.BytesIO()
        with zipfile.ZipFile(tiny, "w", zipfile.ZIP_DEFLATED) as packed:
            packed.writestr("word/document.xml", "<a><p>a</p></a>")
        office(tiny.getvalue(), {"chars": 10})
        return
    image: Any = importlib.import_module("PIL.Image")
    for name in FORMATS if kind == "pdf" else (kind, "JPEG"):
        importlib.import_module(f"PIL.{_PLUGINS[name]}")
    importlib.import_module("PIL.TiffImagePlugin")  # what a camera notes is written as in a TIFF
    image.MAX_IMAGE_PIXELS = None  # our own limits count
    image._initialized = 2  # noqa: SLF001 - no other format is looked for
    for name in FORMATS if kind == "pdf" else (kind,):
        tiny = io.BytesIO()
        image.new("P", (2, 2)).convert("RGB").save(tiny, name)
        _small(tiny, {"side": 1, "most_side": 1, "picture_bytes": 10_000})
    if kind == "pdf":
        library = importlib.import_module("pypdf")
        for found in importlib.import_module("pkgutil").walk_packages(library.__path__, "pypdf."):
            with contextlib.suppress(ImportError):  # of extras that we do not have
                importlib.import_module(found.name)
        logging = importlib.import_module("logging")
        logging.disable()
        codecs = importlib.import_module("codecs")
        for name in ("charmap", "utf-16-be", "utf-16", "cp1252", "latin-1", "mac-roman", "ascii"):
            codecs.lookup(name)


def close_in() -> None:
    """Take everything from this process but memory, time and its open streams."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))


def main(kind: str, libraries: str, limits: str) -> int:
    """Read one file. Returns the exit code."""
    sys.path += json.loads(libraries)
    load(kind)
    close_in()
    pictures: list[bytes] = []
    try:
        head, pictures = KINDS[kind](sys.stdin.buffer.read(), json.loads(limits))
    except Unusable as reason:
        head = {"problem": str(reason)}
    except MemoryError:
        head = {"problem": "too_large"}
    line = json.dumps({**head, "pictures": [len(each) for each in pictures]}).encode() + b"\n"
    for each in (line, *pictures):
        sys.stdout.buffer.write(each)
    sys.stdout.buffer.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
