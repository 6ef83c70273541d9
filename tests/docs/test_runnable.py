"""The runner of pages: what a reader would see as wrong fails, and only that."""

import os
import signal
from pathlib import Path

import pytest

from tests.docs.runnable import run_page


def _page(folder: Path, text: str) -> Path:
    page = folder / "page.md"
    page.write_text(text, encoding="utf-8")
    return page


def test_a_page_that_shows_what_is_not_printed_fails(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"shows\ntwo\n\nprints\none"):
        run_page(_page(tmp_path, "```python\nprint('one')\n```\n```text\ntwo\n```\n"))


@pytest.mark.usefixtures("ctrl_c_heeded")
def test_a_signal_to_the_tests_ends_them_and_fails_no_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit of time around the whole run sends one while a command of a page runs."""

    def ended(path: Path) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("lowtide.cli.pack.check_writable", ended)
    page = _page(tmp_path, "```console\n$ lowtide pack buffers.csv -o out.csv\nanything\n```\n")
    with pytest.raises(KeyboardInterrupt):
        run_page(page)
