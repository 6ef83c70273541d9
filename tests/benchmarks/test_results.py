"""The page of results holds what its scripts wrote, and nothing else."""

from pathlib import Path
from types import ModuleType

import pytest

from tests.benchmarks.conftest import BENCHMARKS, Load

COMMAND = "python benchmarks/bench_large.py"
NAME = "The search on large graphs"


@pytest.fixture(name="results")
def results_fixture(load: Load) -> ModuleType:
    return load("results")


@pytest.fixture
def page(results: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A page of two sections, as scripts write them."""
    path = tmp_path / "RESULTS.md"
    monkeypatch.setattr(results, "RESULTS", path)
    results.write_section(NAME, COMMAND, "| graph | 1.25 s |")
    results.write_section("Packing", "python benchmarks/bench_packing.py", "met: 3 of 3")
    return path


def test_every_section_of_the_page_is_as_its_script_wrote_it(results: ModuleType) -> None:
    assert results.complaints((BENCHMARKS / "RESULTS.md").read_text()) == []


def test_a_page_that_only_scripts_wrote_has_nothing_to_complain_of(results: ModuleType, page: Path) -> None:
    assert results.complaints(page.read_text()) == []


@pytest.mark.parametrize(("written", "instead"), [("1.25 s", "1.24 s"), ("3 of 3\n", "3 of 3\n\nSo all is well.\n")])
def test_a_cell_set_by_hand_and_a_sentence_put_in_by_hand_are_seen(
    results: ModuleType, page: Path, written: str, instead: str
) -> None:
    changed = page.read_text().replace(written, instead)
    (said,) = results.complaints(changed)
    assert "not as its script wrote it; run python benchmarks/bench_" in said


def test_text_between_the_sections_is_seen(results: ModuleType, page: Path) -> None:
    assert results.complaints(page.read_text() + "\nFaster than ever.\n") == [
        "text outside the sections, or sections out of order; every section is written by its command"
    ]


def test_a_section_without_a_digest_is_one_that_no_script_wrote(results: ModuleType, page: Path) -> None:
    digest = results.digest_of(results.sections_of(page.read_text())[NAME].text)
    assert results.complaints(page.read_text().replace(f" sha256:{digest}", "")) == [
        f"{NAME}: not as its script wrote it; run {COMMAND}"
    ]


def test_writing_one_section_makes_no_other_one_right(results: ModuleType, page: Path) -> None:
    page.write_text(page.read_text().replace("1.25 s", "1.24 s"))
    results.write_section("Packing", "python benchmarks/bench_packing.py", "met: 2 of 3")
    assert results.complaints(page.read_text()) == [f"{NAME}: not as its script wrote it; run {COMMAND}"]


@pytest.mark.parametrize("command", ["python benchmarks/bench_gone.py", "python benchmarks/bench_large.py", ""])
def test_a_command_that_names_no_script_of_the_section_is_seen(results: ModuleType, page: Path, command: str) -> None:
    results.write_section("The search against all orders", command, "0 mismatches")
    assert results.complaints(page.read_text()) == [
        f"The search against all orders: its command, {command!r}, names no script that writes this section"
    ]
