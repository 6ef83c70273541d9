"""The browser that pages are tried in: any Chromium on the PATH."""

import shutil

_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")


def find_browser() -> str | None:
    """Return the path of a Chromium, None where none is installed."""
    return next(filter(None, map(shutil.which, _NAMES)), None)
