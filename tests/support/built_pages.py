"""Checks the built documentation as a browser sees it: every link inside it leads somewhere.

Run as a program, it also takes a picture of each page, as wide as a desktop and as a phone.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urldefrag, urlparse

BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome")
SIZES: Final = {"desktop": (1280, 2400), "phone": (500, 2400)}  # Chromium is never narrower


class Page(HTMLParser):
    """The links and anchors of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors = {""}
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect what an element links to, and its id."""
        del tag
        for name, value in attrs:
            if name in {"href", "src"} and value is not None:
                self.links.append(value)
            elif name == "id" and value is not None:
                self.anchors.add(value)


def broken_links(root: Path) -> list[str]:
    """Return the links between the pages below a folder that lead nowhere."""
    pages = {path: Page(path) for path in root.rglob("*.html")}
    broken = []
    for path, page in pages.items():
        for link in page.links:
            place, anchor = urldefrag(link)
            if urlparse(link).scheme or link.startswith("//"):
                continue
            target = (path.parent / unquote(urlparse(place).path)).resolve() if place else path
            known = pages.get(target)
            if not target.exists() or (known is not None and unquote(anchor) not in known.anchors):
                broken.append(f"{path.relative_to(root)}: {link}")
    return broken


def take_pictures(root: Path, folder: Path) -> None:
    """Take a picture of each page below a folder, by a browser that is installed."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        sys.exit("no Chromium: install your system's package, such as `apt install chromium`")
    folder.mkdir(exist_ok=True)
    for path in sorted(root.glob("*.html")):
        for name, (width, height) in SIZES.items():
            picture = folder / f"{path.stem}-{name}.png"
            subprocess.run(
                [
                    *(browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
                    *(f"--window-size={width},{height}", f"--screenshot={picture}"),
                    path.as_uri(),
                ],
                check=True,
                timeout=60,
                capture_output=True,
            )


def main() -> None:
    """Check the pages in the folder that is given, and take pictures into the other one."""
    root, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    if broken := broken_links(root):
        sys.exit("links that lead nowhere:\n" + "\n".join(broken))
    take_pictures(root, folder)
    print(f"all links lead somewhere; the pictures are in {folder}")  # noqa: T201


if __name__ == "__main__":
    main()
