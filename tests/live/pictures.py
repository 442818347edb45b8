"""The pictures of README and docs, made from the real thing: ``python -m tests.live.pictures``.

``kill.svg`` is a recording: a chat in which an agent counts, a ``kill -9`` of the daemon meanwhile,
and what the chat shows then, with the times at which it showed it. ``page.png`` is the page on a phone.
"""

from __future__ import annotations

import asyncio
import html
import os
import re
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from playwright.async_api import expect

from tests.live.browser import open_browser
from tests.live.page_fixture import say

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
_ENVIRON = {k: v for k, v in os.environ.items() if not k.startswith(("AGENTSUP_", "OPENAI_"))}
_LINE_PX, _CHAR_PX, _END_S = 22, 8.4, 3.0


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the recording; ``at_s`` is when it came, ``kind`` a class of the picture."""

    at_s: float
    text: str
    kind: str = "said"


class Home:
    """A new home with the example agents, and commands on it."""

    def __init__(self, root: Path) -> None:
        self._environ = {**_ENVIRON, "AGENTSUP_HOME": str(root), "AGENTSUP_API__PORT": "0"}

    async def begin(self, *words: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "agentsup", *words),
            stdin=PIPE,
            stdout=PIPE,
            stderr=STDOUT,
            env=self._environ,
        )

    async def done(self, *words: str) -> str:
        process = await self.begin(*words)
        async with asyncio.timeout(60):
            said, _ = await process.communicate()
        assert process.returncode == 0, said
        return said.decode()


async def record_kill(home: Home) -> list[Line]:
    """Count, kill, and what the chat shows."""
    chat = await home.begin("chat")
    assert chat.stdin is not None
    assert chat.stdout is not None
    await chat.stdout.readline()  # which engine answers
    began_s = monotonic()
    lines = [Line(0.4, "› count", "typed")]
    chat.stdin.write(b"count\n")
    await asyncio.sleep(3)
    found = re.search(r"^pid\s+(\d+)", await home.done("status"), re.MULTILINE)
    assert found is not None
    os.kill(int(found[1]), signal.SIGKILL)
    lines.append(Line(monotonic() - began_s, f"$ kill -9 {found[1]}", "typed"))
    async with asyncio.timeout(60):
        while "10" not in lines[-1].text:
            text = (await chat.stdout.readline()).decode().rstrip()
            lines.append(Line(monotonic() - began_s, text))
    chat.stdin.close()
    await chat.wait()
    return lines


def drawn(lines: Sequence[Line], title: str) -> str:
    """The recording as one SVG picture that repeats, without any script."""
    whole_s = lines[-1].at_s + _END_S
    width = max(40, *(len(line.text) for line in lines), len(title)) * _CHAR_PX + 40
    height = (len(lines) + 2) * _LINE_PX + 20
    rows, rules = [], []
    for number, line in enumerate(lines):
        share = 100 * line.at_s / whole_s
        rules.append(
            f"@keyframes l{number}{{0%,{share:.2f}%{{opacity:0}}{share + 0.01:.2f}%,100%{{opacity:1}}}}"
            f".l{number}{{animation:l{number} {whole_s:.1f}s linear infinite}}"
        )
        y = (number + 2) * _LINE_PX + 16
        rows.append(
            f'<text class="{line.kind} l{number}" x="20" y="{y}">{html.escape(line.text)}</text>'
        )
    style = "text{font:14px ui-monospace,monospace;fill:#d6dae2}.typed{fill:#8fd18f}.title{fill:#8a91a0}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" role="img">'
        f"<title>{html.escape(title)}</title><style>{style}{''.join(rules)}</style>"
        f'<rect width="100%" height="100%" rx="8" fill="#16181d"/>'
        f'<text class="title" x="20" y="30">{html.escape(title)}</text>{"".join(rows)}</svg>\n'
    )


async def take_page(home: Home, folder: Path, target: Path) -> None:
    """A chat on the page, on a phone."""
    link = re.search(r"http\S+", await home.done("link"))
    assert link is not None
    async with open_browser(folder) as browsing:
        page = await (await browsing.context("phone", "light")).new_page()
        await page.goto(link[0])
        for text, answer in (
            ("ask writer for a haiku", "nothing lost tonight"),
            ("choose", "Which one do you like?"),
        ):
            await say(page, text)
            await expect(page.get_by_text(answer).first).to_be_visible()
        await expect(page.get_by_text("You are signed in")).to_be_hidden()
        await page.screenshot(path=target)


async def main() -> None:
    """Make both pictures."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder) / "home")
        await home.done("up", "--no-chat")
        try:
            lines = await record_kill(home)
            (FOLDER / "kill.svg").write_text(drawn(lines, "agentsup chat"), encoding="utf-8")
            await take_page(home, Path(folder), FOLDER / "page.png")
        finally:
            await home.done("stop")


if __name__ == "__main__":
    asyncio.run(main())
