"""The system's Chromium, and pages that collect their errors."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field

import pytest
from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Error,
    Page,
    Request,
    ViewportSize,
)

from tests.eventually import PATIENCE_SECONDS

# The first is the same engine without windows, at half the work.
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium_path() -> str:
    """Return where Chromium is. Without one the test is skipped, or fails if PULSE_REQUIRE_BROWSER=1."""
    given = os.environ.get("PULSE_CHROMIUM")
    found = given or next((path for name in _NAMES if (path := shutil.which(name))), None)
    if found is not None:
        return found
    reason = "no Chromium on PATH: install one (Debian: apt install chromium), or name it with PULSE_CHROMIUM"
    if os.environ.get("PULSE_REQUIRE_BROWSER") == "1":
        pytest.fail(f"PULSE_REQUIRE_BROWSER=1, but there is {reason}")
    pytest.skip(reason)


@dataclass
class Complaints:
    """What the browser complained about: errors on the console, uncaught exceptions, refused policies.

    A test that provokes one says so with `expect`.
    """

    said: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)

    def follow(self, page: Page) -> None:
        page.on("console", self._console)
        page.on("pageerror", self._uncaught)
        page.on("dialog", self._dialog)

    def leave(self, page: Page) -> None:
        page.remove_listener("console", self._console)
        page.remove_listener("pageerror", self._uncaught)
        page.remove_listener("dialog", self._dialog)

    def expect(self, part: str) -> None:
        """Complaints that contain this text are what the test is about."""
        self.expected.append(part)

    def unexpected(self) -> list[str]:
        return [line for line in self.said if not any(part in line for part in self.expected)]

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.said.append(f"console {message.type}: {message.text} {message.location.get('url', '')}")

    def _uncaught(self, error: Error) -> None:
        self.said.append(f"uncaught: {error}")

    def _dialog(self, dialog: Dialog) -> None:
        self.said.append(f"dialog: {dialog.message}")


VIEWPORT: ViewportSize = {"width": 1280, "height": 900}


async def new_context(browser: Browser) -> BrowserContext:
    return await browser.new_context(viewport=VIEWPORT, reduced_motion="reduce", timezone_id="Europe/Paris")


_open_pages: set[Page] = set()


async def close_pages() -> None:
    """Close what is open, before what it shows goes away."""
    while _open_pages:
        await _open_pages.pop().close()


async def new_page(context: BrowserContext, complaints: Complaints) -> Page:
    page = await context.new_page()
    _open_pages.add(page)
    page.set_default_timeout(PATIENCE_SECONDS * 1_000)
    complaints.follow(page)
    return page


def is_live_refresh(request: Request) -> bool:
    """True for what an open page asks by itself."""
    return "pulse-live" in request.headers
