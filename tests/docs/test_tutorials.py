"""Pages that a reader follows run as they stand."""

from pathlib import Path

import pytest
import torch  # noqa: F401 (its loggers keep the stream that is open when it is imported)

from tests.docs.runnable import run_page

ROOT = Path(__file__).parents[2]
ERRORS = sorted(page for page in (ROOT / "docs" / "errors").glob("*.md") if page.stem != "index")
PAGES = [
    *sorted((ROOT / "docs" / "tutorials").glob("*.md")),
    *ERRORS,
    ROOT / "docs" / "inference.md",
    ROOT / "docs" / "development" / "writing_an_algorithm.md",
    ROOT / "docs" / "reference" / "schemas.md",
    ROOT / "docs" / "reference" / "api" / "index.md",
]

MESSAGES = (
    "Killed",
    "jax.errors.JaxRuntimeError",
    "onnxruntime.capi.onnxruntime_pybind11_state.Fail",
    "torch.OutOfMemoryError",
)
LONGEST_ERROR_PAGE = 80
"""Lines of a page about an error, without its first four."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
@pytest.mark.usefixtures("folder")
def test_a_page_prints_what_it_shows(page: Path, request: pytest.FixtureRequest) -> None:
    if "--device" in page.read_text(encoding="utf-8"):
        request.getfixturevalue("cache_of_the_run")
    assert run_page(page) >= 1


@pytest.mark.parametrize("page", ERRORS, ids=lambda page: page.stem)
def test_a_page_about_an_error_opens_with_its_message_and_is_short(page: Path) -> None:
    """A search for the message finds the page, and the index does."""
    title, _, fence, message, *rest = page.read_text(encoding="utf-8").splitlines()
    assert title.startswith("# ")
    assert (fence, message.split(":")[0] in MESSAGES) == ("```", True)
    assert len(rest) <= LONGEST_ERROR_PAGE
    assert f"({page.name})" in (page.parent / "index.md").read_text(encoding="utf-8")
