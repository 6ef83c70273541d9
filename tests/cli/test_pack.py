"""`lowtide pack`: what it prints, writes and exits with."""

import csv
import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.cli.conftest import Command

KEYS = ["arena_bytes", "lower_bound_bytes", "optimal", "seconds", "status", "method", "gap", "conflict", "work"]
SAMPLE = Path(__file__).parents[1] / "data/buffers/minimalloc_A.csv"
SMALL = "id,lower,upper,size\na,0,3,4\nb,3,9,4\nc,0,9,4\nd,9,21,4\ne,0,21,4\n"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Five buffers of which three are live at once; 12 bytes are enough."""
    path = tmp_path / "small.csv"
    path.write_text(SMALL)
    return path


def offsets_in(path: Path) -> dict[str, int]:
    """Return the offset of every buffer in a file."""
    with path.open(newline="") as file:
        return {row["id"]: int(row["offset"]) for row in csv.DictReader(file)}


def result_of(lowtide: Command, *arguments: object, code: int = 0) -> dict[str, Any]:
    """Run `pack --json` and return the object."""
    done = lowtide("pack", *arguments, "--json")
    assert (done.code, done.complaints) == (code, [])
    return json.loads(done.stdout)


def test_the_json_object_has_the_promised_keys_with_bytes_as_ints(lowtide: Command, small: Path) -> None:
    fields = result_of(lowtide, small)
    assert set(KEYS) <= set(fields)
    assert (fields["arena_bytes"], fields["lower_bound_bytes"], fields["optimal"], fields["gap"]) == (12, 12, True, 0.0)
    assert (fields["status"], fields["n_buffers"], fields["shortfall"]) == ("optimal", 5, None)


def test_lines_come_and_go_through_pipes_and_words_go_to_stderr(small: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lowtide", "pack", "-", "-o", "-", "--capacity", "12B"]
    done = subprocess.run(command, input=gzip.compress(SMALL.encode()), capture_output=True, check=True)
    (tmp_path / "out.csv").write_bytes(done.stdout)
    assert [line.rpartition(",")[0] for line in done.stdout.decode().splitlines()] == SMALL.splitlines()
    assert max(offsets_in(tmp_path / "out.csv").values()) == 8
    assert b"stdin: 5 buffers, optimal" in done.stderr
    empty = subprocess.run([*command[:4], "-"], input=b"", capture_output=True, check=False)
    assert (empty.returncode, empty.stdout) == (3, b"")
    assert empty.stderr.startswith(b"lowtide: stdin: it is empty")


def test_a_pipe_that_would_get_two_results_is_refused(lowtide: Command, small: Path) -> None:
    done = lowtide("pack", small, "-o", "-", "--json")
    assert (done.code, done.stdout) == (2, "")
    assert "both write to stdout" in done.stderr


def test_the_page_says_arena_bound_gap_and_time(lowtide: Command, small: Path) -> None:
    done = lowtide("pack", small)
    assert done.code == 0
    for part in ("small.csv: 5 buffers, optimal", "arena            12 bytes", "lower bound      12 bytes", " s\n"):
        assert part in done.stdout


def test_the_file_has_the_same_lines_with_offsets_that_do_not_overlap(
    lowtide: Command, small: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.csv"
    assert lowtide("pack", small, "-o", out).code == 0
    assert [line.rpartition(",")[0] for line in out.read_text().splitlines()] == SMALL.splitlines()
    at = offsets_in(out)
    assert sorted([at["a"], at["c"], at["e"]]) == sorted([at["b"], at["c"], at["e"]]) == [0, 4, 8]


def test_equal_input_gives_equal_files(lowtide: Command, tmp_path: Path) -> None:
    for name in ("one", "two"):
        assert lowtide("pack", SAMPLE, "-o", tmp_path / f"{name}.csv.gz", "--svg", tmp_path / f"{name}.svg").code == 0
    for ending in ("csv.gz", "svg"):
        assert (tmp_path / f"one.{ending}").read_bytes() == (tmp_path / f"two.{ending}").read_bytes()


def test_alignment_joins_the_files_own(lowtide: Command, tmp_path: Path) -> None:
    """Multiples of 4 and of 6 are multiples of 12."""
    path = tmp_path / "aligned.csv"
    path.write_text("id,lower,upper,size,alignment\n" + "".join(f"b{k},0,9,5,6\n" for k in range(4)))
    lowtide("pack", path, "--alignment", "4", "-o", tmp_path / "out.csv")
    assert sorted(offsets_in(tmp_path / "out.csv").values()) == [0, 12, 24, 36]


def test_a_capacity_that_is_kept_exits_0(lowtide: Command, small: Path) -> None:
    assert result_of(lowtide, small, "--capacity", "12B")["capacity_bytes"] == 12
    assert result_of(lowtide, small, "--capacity", "1KiB")["shortfall"] is None


def test_a_capacity_that_is_missed_exits_1_and_the_packing_is_written_anyway(
    lowtide: Command, small: Path, tmp_path: Path
) -> None:
    fields = result_of(lowtide, small, "--capacity", "11B", "-o", tmp_path / "out.csv", code=1)
    assert "11 bytes" in fields["shortfall"]
    assert fields["arena_bytes"] == max(offsets_in(tmp_path / "out.csv").values()) + 4 > 11
    assert "does not fit" in lowtide("pack", small, "--capacity", "11B").stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["--capacity", "much"],
        ["--capacity", "-1"],
        ["--capacity", "11"],
        ["--capacity", "99999999TiB"],
        ["--alignment", "0"],
        ["--effort", "some"],
        ["-o", "no such folder/out.csv"],
        ["--svg", "no such folder/out.svg"],
        ["-o", "same", "--svg", "same"],
    ],
    ids=" ".join,
)
def test_a_wrong_call_exits_2_with_one_line_and_leaves_no_file(
    lowtide: Command, small: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(small.parent)
    done = lowtide("pack", small, *arguments)
    assert (done.code, done.stdout, len(done.complaints)) == (2, "", 1)
    assert [path.name for path in small.parent.iterdir()] == ["small.csv"]


@pytest.mark.parametrize(
    "text",
    ["", "id,lower\n", SMALL + "f,9,3,4\n", SMALL + "a,1,2,3\n", SMALL + "f,0,1,-3\n", f"{SMALL}f,0,1,{2**62}\n"],
    ids=["empty", "columns", "backward", "twice", "negative", "overflow"],
)
def test_bad_files_exit_3_with_one_line_and_leave_no_file(lowtide: Command, tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    done = lowtide("pack", path, "-o", tmp_path / "out.csv", "--svg", tmp_path / "out.svg")
    assert (done.code, done.stdout, len(done.complaints)) == (3, "", 1)
    assert [file.name for file in tmp_path.iterdir()] == ["bad.csv"]


def test_an_alignment_beyond_64_bits_with_the_files_own_exits_2(lowtide: Command, tmp_path: Path) -> None:
    path = tmp_path / "aligned.csv"
    path.write_text(f"id,lower,upper,size,alignment\na,0,9,5,{2**61 - 1}\n")
    done = lowtide("pack", path, "--alignment", "1024")
    assert (done.code, len(done.complaints)) == (2, 1)


def test_a_file_of_ten_gigabytes_is_refused_in_one_line(lowtide: Command, tmp_path: Path) -> None:
    path = tmp_path / "large.csv"
    with path.open("wb") as file:
        file.truncate(10 * 10**9)
    done = lowtide("pack", path)
    assert (done.code, done.stdout, len(done.complaints)) == (3, "", 1)


def test_names_from_a_hostile_file_are_spelled_out_and_the_picture_stays_xml(lowtide: Command, tmp_path: Path) -> None:
    path = tmp_path / "hostile.csv"
    path.write_text('id,lower,upper,size\n"<b>&""\x1b[31m\n",0,9,8\n]]>,0,9,8\n\ufffe,0,4,8\n')
    done = lowtide("pack", path, "--svg", tmp_path / "out.svg")
    assert done.code == 0
    assert "\x1b" not in done.stdout
    titles = [title.text for title in ElementTree.parse(tmp_path / "out.svg").iter("{http://www.w3.org/2000/svg}title")]
    assert any(text is not None and text.startswith('<b>&"\\x1b[31m\\n: 8 bytes') for text in titles)
