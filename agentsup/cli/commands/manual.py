"""``docs``: the pages of the documentation, which come with the package."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final

import typer

import agentsup
from agentsup.cli.connect.failure import CommandFailed
from agentsup.cli.output.show import CommandOutput

_PACKAGE: Final = Path(agentsup.__file__).parent
_WIDTH: Final = 100
_BLOCK: Final = re.compile(r"\s*(?:$|#|\||>|```|[-*+] |\d+\. )")
"""The beginning of a line that goes on with no sentence of the line before."""


def docs(
    page: Annotated[
        str | None, typer.Argument(metavar="PAGE", help="Its name; without it, the list of pages.")
    ] = None,
) -> None:
    """Read the documentation."""
    from agentsup.cli.chat.markdown import MarkdownStream

    screen, pages = CommandOutput(), _pages()
    if page is None:
        rows = [{"page": name, "title": _title(path)} for name, path in pages.items()]
        screen.listing(rows, {"page": "page", "title": "title"}, empty="")
        return
    name = page.removeprefix("docs/").removesuffix(".md")
    if name not in pages:
        raise CommandFailed(f"there is no page {name!r}; `agentsup docs` lists them", exit_code=2)
    text = pages[name].read_text(encoding="utf-8")
    if not screen.is_terminal:
        print(text, end="")
        return
    shown = MarkdownStream("", lambda: min(_WIDTH, screen.width or _WIDTH))
    print("\n".join([*shown.add(_joined(text)), *shown.end()]))


def _pages() -> dict[str, Path]:
    """The pages by name. In a wheel they are in the package, in a clone beside it."""
    folder = next(
        (each for each in (_PACKAGE / "docs", _PACKAGE.parent / "docs") if each.is_dir()), None
    )
    if folder is None:
        raise CommandFailed("this installation has no documentation: the folder docs is missing")
    found = [*folder.glob("*.md"), *folder.glob("examples/*.md"), *folder.glob("reference/*.md")]
    named = {str(path.relative_to(folder).with_suffix("")): path for path in sorted(found)}
    return {"index": named.pop("index"), **named} if "index" in named else named


def _title(path: Path) -> str:
    found = re.search(r"^# (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else path.stem


def _joined(text: str) -> str:
    """The page with each paragraph in one line, to be broken for this terminal."""
    lines: list[str] = []
    is_code = may_go_on = False
    for line in text.splitlines():
        is_fence = line.lstrip().startswith("```")
        if may_go_on and not is_code and not _BLOCK.match(line):
            lines[-1] += f" {line.strip()}"
            continue
        lines.append(line)
        is_code = is_code != is_fence
        may_go_on = bool(line.strip()) and not is_fence and line.lstrip()[0] not in "#|"
    return "\n".join(lines)
