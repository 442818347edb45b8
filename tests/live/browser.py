"""Headless Chromium for live tests: pages of a phone or a desktop, dark or light, and axe."""

from __future__ import annotations

import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    async_playwright,
    expect,
)

from tests.support.bound import BOUND_S

CHROMIUM: Final = ("/usr/bin/chromium", "chromium", "chromium-browser")
FLAGS: Final = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
AXE: Final = Path(__file__).parents[2] / "requirements/browser/node_modules/axe-core/axe.min.js"
Device = Literal["phone", "desktop"]
Scheme = Literal["light", "dark"]
_DEVICES: Final[dict[str, dict[str, Any]]] = {
    "phone": {
        "viewport": {"width": 390, "height": 844},
        "device_scale_factor": 2,
        "is_mobile": True,
        "has_touch": True,
    },
    "desktop": {"viewport": {"width": 1280, "height": 800}},
}
_WAIT_MS: Final = BOUND_S * 1000


@dataclass(slots=True)
class Browsing:
    """A browser, and what its pages complained about."""

    browser: Browser
    folder: Path
    """Where screenshots of a test may go."""
    problems: list[str] = field(default_factory=list)
    """Console errors, uncaught errors, in their order."""
    expected: list[str] = field(default_factory=list)
    """Patterns of the problems that the test causes itself."""

    async def context(
        self, device: Device = "desktop", scheme: Scheme = "light", **options: Any
    ) -> BrowserContext:
        """A fresh profile: no cookies, no storage. Its pages are tabs of one person."""
        made = await self.browser.new_context(
            **_DEVICES[device], color_scheme=scheme, reduced_motion="reduce", **options
        )
        made.set_default_timeout(_WAIT_MS)
        made.on("console", lambda message: self._console(message))  # noqa: PLW0108  # the library marks handlers, and a slotted object takes no mark
        made.on("weberror", lambda error: self.problems.append(f"uncaught: {error.error}"))
        return made

    async def page(
        self, device: Device = "desktop", scheme: Scheme = "light", **options: Any
    ) -> Page:
        """A page in a fresh profile."""
        return await (await self.context(device, scheme, **options)).new_page()

    def forgive(self, *expected: str) -> None:
        """Let ``check`` pass over problems that match a pattern, of before and of later; without a
        pattern over all. A browser may report a refused request after the test has gone on."""
        self.expected.extend(expected or [""])

    def check(self) -> None:
        """Raise if a page complained of what the test did not cause."""
        left = [
            problem
            for problem in self.problems
            if not any(re.search(pattern, problem) for pattern in self.expected)
        ]
        assert left == [], left

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.problems.append(f"console: {message.text} ({message.location.get('url', '')})")


@asynccontextmanager
async def open_browser(folder: Path) -> AsyncIterator[Browsing]:
    """Start Chromium with an empty profile. Raises ``RuntimeError`` if it is missing."""
    program = next((found for name in CHROMIUM if (found := shutil.which(name))), None)
    if program is None:
        raise RuntimeError("no Chromium; run `make browser` (Debian: apt-get install chromium)")
    folder.mkdir(parents=True, exist_ok=True)
    expect.set_options(timeout=_WAIT_MS)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        try:
            yield Browsing(browser, folder)
        finally:
            await browser.close()


async def axe(page: Page) -> list[str]:
    """What axe finds wrong with the page as it stands: one line for each place."""
    if not AXE.exists():
        raise RuntimeError(f"no axe-core: {AXE} is missing; run `make browser`")
    # Through the debugger, so that a Content-Security-Policy is neither broken nor switched off.
    await page.evaluate(AXE.read_text(encoding="utf-8"))
    found = await page.evaluate("async () => (await axe.run()).violations")
    return [
        f"{one['id']} ({one['impact']}): {one['help']}: {node['html'][:200]}"
        for one in found
        for node in one["nodes"]
    ]


async def overflow_px(page: Page) -> int:
    """By how many CSS pixels the page is wider than its window."""
    script = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
    return int(await page.evaluate(script))
