"""A browser for tests of pages: the system's Chromium, driven by Playwright, without a network."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--font-render-hinting=none",
)  # fmt: skip


SIZE = {"width": 1280, "height": 900}  # pixels
PATIENCE = 120_000  # milliseconds for each step of a page: on a loaded machine, it takes many times longer


def lacking() -> str:
    """Names the missing part of a browser test; "" if there is none."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "Playwright is not installed (extra `test`)"
    return "" if executable() else f"no browser: none of {', '.join(NAMES)} on the PATH"


def executable() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


needs_browser = pytest.mark.skipif(bool(lacking()), reason=lacking())


class Opened:
    """A page of a browser that opened a file."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.requests: list[str] = []
        self.errors: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.errors.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))

    def open(self, file: Path, fragment: str = "") -> Opened:
        """Opens a file by file:// and waits until it has drawn itself."""
        self.page.goto("about:blank")
        self.requests.clear()
        self.page.goto(file.resolve().as_uri() + (f"#{fragment}" if fragment else ""))
        self.page.wait_for_selector("html[data-ready]", timeout=PATIENCE)
        return self

    def renew(self) -> Opened:
        """Makes the window as `window` does, in a tenth of the time."""
        self.page.goto("about:blank")
        self.page.set_viewport_size(SIZE)
        self.page.emulate_media(media="null", color_scheme="light", reduced_motion="reduce")
        self.requests.clear()
        self.errors.clear()
        return self

    def run(self, script: str, *arguments: Any) -> Any:
        """Returns the value of a JavaScript function of one argument, a list."""
        return self.page.evaluate(script, list(arguments))

    @property
    def fragment(self) -> str:
        return str(self.page.evaluate("location.hash.slice(1)"))

    def difference(self, one: bytes, other: bytes) -> float:
        """Returns the average difference of two PNG pictures, 0 to 1; 1 if their sizes differ."""
        urls = [f"data:image/png;base64,{base64.b64encode(data).decode()}" for data in (one, other)]
        return float(self.run(DIFFERENCE, *urls))


DIFFERENCE = """async (urls) => {
  const pixels = await Promise.all(urls.map(async (url) => {
    const image = new Image();
    image.src = url;
    await image.decode();
    const canvas = new OffscreenCanvas(image.width, image.height), context = canvas.getContext("2d");
    context.drawImage(image, 0, 0);
    return [image.width, image.height, context.getImageData(0, 0, image.width, image.height).data];
  }));
  const [[w, h, a], [v, g, b]] = pixels;
  if (w !== v || h !== g) return 1;
  let sum = 0;
  for (let at = 0; at < a.length; at++) sum += Math.abs(a[at] - b[at]);
  return sum / a.length / 255;
}"""


@contextmanager
def browser() -> Iterator[Any]:
    """Yields Chromium, headless."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=executable(), args=list(FLAGS))
        try:
            yield made
        finally:
            made.close()


@contextmanager
def window(made: Any, width: int = SIZE["width"], height: int = SIZE["height"], dark: bool = False) -> Iterator[Opened]:
    """Yields a window of a browser, offline."""
    context = made.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light", offline=True, reduced_motion="reduce"
    )
    try:
        context.set_default_timeout(PATIENCE)
        yield Opened(context.new_page())
    finally:
        context.close()
