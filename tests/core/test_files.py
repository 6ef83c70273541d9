"""Files: gzip-aware reading, and writing that leaves a whole file or none."""

import gzip
import os
from pathlib import Path

import pytest

from lowtide.core import files
from lowtide.core.errors import InputError, MalformedInputError, UsageError
from lowtide.core.files import check_writable, read_bytes, write_bytes


@pytest.mark.parametrize("name", ["plain.json", "packed.json.gz"])
def test_what_was_written_reads_back(tmp_path: Path, name: str) -> None:
    write_bytes(tmp_path / name, b"content" * 1000)
    assert read_bytes(tmp_path / name) == b"content" * 1000
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_gzip_is_told_by_content_not_by_name_and_holds_no_time(tmp_path: Path) -> None:
    write_bytes(tmp_path / "a.gz", b"same")
    write_bytes(tmp_path / "b.gz", b"same")
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()
    (tmp_path / "packed.json").write_bytes(gzip.compress(b"same"))
    assert read_bytes(tmp_path / "packed.json") == b"same"


def test_a_file_that_stood_there_is_replaced_and_a_link_keeps_pointing_to_it(tmp_path: Path) -> None:
    write_bytes(tmp_path / "old", b"old")
    (tmp_path / "link").symlink_to(tmp_path / "old")
    write_bytes(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "old").read_bytes() == b"new"


def test_a_name_as_long_as_the_file_system_allows_can_be_written(tmp_path: Path) -> None:
    write_bytes(tmp_path / ("n" * 255), b"x")
    assert read_bytes(tmp_path / ("n" * 255)) == b"x"


@pytest.mark.parametrize("cut", [3, 12, -1, -8])
def test_a_truncated_gzip_file_is_malformed(tmp_path: Path, cut: int) -> None:
    (tmp_path / "x.gz").write_bytes(gzip.compress(os.urandom(100))[:cut])
    with pytest.raises(MalformedInputError, match="broken gzip"):
        read_bytes(tmp_path / "x.gz")


def test_missing_files_folders_and_impossible_names_are_input_errors(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path, tmp_path / ("n" * 300), Path("a\0b")):
        with pytest.raises(InputError, match="cannot read"):
            read_bytes(path)


def test_more_than_the_limit_is_refused_before_it_is_all_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_BYTES", 1000)
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(bytes(10**6)))
    with pytest.raises(InputError, match="more than 1000 bytes"):
        read_bytes(tmp_path / "bomb.gz")


@pytest.mark.parametrize("write", [check_writable, lambda path: write_bytes(path, b"x")], ids=["check", "write"])
def test_places_that_cannot_be_written_are_usage_errors_and_nothing_is_left_there(
    tmp_path: Path, write: object
) -> None:
    (tmp_path / "file").write_bytes(b"kept")
    places = [tmp_path, tmp_path / "no folder" / "x", tmp_path / "file" / "x", Path("a\0b")]
    for place in places:
        with pytest.raises(UsageError, match="cannot write"):
            write(place)  # type: ignore[operator]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == b"kept"


def test_a_device_is_never_replaced_by_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="not a regular file"):
        write_bytes(tmp_path / "pipe", b"x")
    assert (tmp_path / "pipe").is_fifo()
