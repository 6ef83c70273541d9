"""CSV files of buffers: reading, errors with line numbers, and writing with offsets."""

import csv
import gzip
import io
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.core.errors import InputError, MalformedInputError
from lowtide.engine.packing import FREE, csv_file
from lowtide.engine.packing.csv_file import BufferFile, read_buffer_file, write_buffer_file

SAMPLES = sorted((Path(__file__).parents[2] / "data/buffers").glob("*.csv"))
PLAIN = "id,lower,upper,size\na,0,3,4\nb,3,9,4\n"
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0"), min_size=1, max_size=8)


def read(folder: Path, text: str | bytes) -> BufferFile:
    """Read a file with this text."""
    path = folder / "buffers.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_buffer_file(path)


def written(folder: Path, file: BufferFile, offsets: list[int]) -> str:
    """Return the text of a file with offsets."""
    write_buffer_file(folder / "out.csv", file, np.asarray(offsets))
    return (folder / "out.csv").read_bytes().decode()


def rows(file: BufferFile) -> list[tuple[object, ...]]:
    """Return name, first, last and size of every buffer."""
    buffers = file.buffers
    assert buffers.names is not None
    return list(zip(buffers.names, buffers.first.tolist(), buffers.last.tolist(), buffers.sizes.tolist(), strict=True))


def test_half_open_live_ranges_round_trip_with_offsets(tmp_path: Path) -> None:
    file = read(tmp_path, PLAIN)
    assert rows(file) == [("a", 0, 3, 4), ("b", 3, 9, 4)]
    assert (file.buffers.alignment.tolist(), file.buffers.fixed, file.buffers.hints, file.buffers.gaps) == (
        [1, 1],
        None,
        None,
        None,
    )
    assert written(tmp_path, file, [8, 0]) == "id,lower,upper,size,offset\na,0,3,4,8\nb,3,9,4,0\n"


def test_the_step_in_an_end_column_belongs_to_the_live_range_and_to_the_gap(tmp_path: Path) -> None:
    file = read(tmp_path, "id,start,end,size,gaps\na,0,1,100,\nb,1,6,80,2-3 5-5\n")
    assert rows(file) == [("a", 0, 2, 100), ("b", 1, 7, 80)]
    assert file.buffers.gaps is not None
    assert file.buffers.gaps.tolist() == [[1, 2, 4], [1, 5, 6]]
    assert written(tmp_path, file, [0, 100]) == "id,start,end,size,gaps,offset\na,0,1,100,,0\nb,1,6,80,2-3 5-5,100\n"


def test_columns_have_any_order_and_all_names_of_minimalloc(tmp_path: Path) -> None:
    file = read(
        tmp_path, "gaps,hint,size,upper,offset,begin,alignment,buffer_id\n5-7,64,8,9,,-4,16,x\n,-1,8,9,32,0,,y\n"
    )
    buffers = file.buffers
    assert rows(file) == [("x", -4, 9, 8), ("y", 0, 9, 8)]
    assert buffers.alignment.tolist() == [16, 1]
    assert buffers.fixed is not None
    assert buffers.hints is not None
    assert buffers.gaps is not None
    assert (buffers.fixed.tolist(), buffers.hints.tolist(), buffers.gaps.tolist()) == (
        [FREE, 32],
        [64, FREE],
        [[0, 5, 7]],
    )
    assert written(tmp_path, file, [48, 32]).splitlines() == [
        "gaps,hint,size,upper,offset,begin,alignment,buffer_id",
        "5-7,64,8,9,48,-4,16,x",
        ",-1,8,9,32,0,,y",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff" + PLAIN,
        PLAIN.replace("\n", "\r\n"),
        PLAIN.rstrip("\n"),
        "\n\n" + PLAIN.replace("\n", "\n\n  \n\r\n"),
        PLAIN.replace(",", " , "),
        'id,"lower",upper,"size"\n"a",0,"3",4\nb,3,9,"4"\n',
        PLAIN.replace("4", "0000000000000000000000004"),
        PLAIN.replace("4", "+4"),
    ],
    ids=["BOM", "CRLF", "no last newline", "blank lines", "spaces", "quotes", "zeros", "plus"],
)
def test_equal_buffers_are_read_from_variants_of_the_text(tmp_path: Path, text: str) -> None:
    read_back = [(str(name).strip(), *figures) for name, *figures in rows(read(tmp_path, text))]
    assert read_back == [("a", 0, 3, 4), ("b", 3, 9, 4)]


def test_gzip_is_read_and_written(tmp_path: Path) -> None:
    file = read(tmp_path, gzip.compress(PLAIN.encode()))
    write_buffer_file(tmp_path / "out.csv.gz", file, np.asarray([0, 0]))
    assert rows(read_buffer_file(tmp_path / "out.csv.gz")) == rows(file)


def test_a_header_alone_is_no_buffers(tmp_path: Path) -> None:
    file = read(tmp_path, "id,lower,upper,size\n")
    assert len(file.buffers) == 0
    assert written(tmp_path, file, []) == "id,lower,upper,size,offset\n"


@given(names=st.lists(NAMES, unique=True, max_size=6), block=st.integers(90, 200))
def test_any_name_round_trips_through_another_csv_reader_within_any_record_limit(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], block: int
) -> None:
    folder = tmp_path_factory.mktemp("names")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerows([["id", "lower", "upper", "size"], *([name, k, k + 1, 7] for k, name in enumerate(names))])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_file, "MOST_RECORD_BYTES", block)
        file = read(folder, text.getvalue())
    assert rows(file) == [(name, k, k + 1, 7) for k, name in enumerate(names)]
    back = list(csv.reader(io.StringIO(written(folder, file, [3] * len(names)), newline="")))
    assert back[1:] == [[name, str(k), str(k + 1), "7", "3"] for k, name in enumerate(names)]


@given(
    st.lists(
        st.tuples(st.integers(-(2**62), 2**62), st.integers(0, 2**40), st.integers(1, 2**40), st.integers(1, 70)),
        max_size=8,
    )
)
def test_any_figures_round_trip(
    tmp_path_factory: pytest.TempPathFactory, figures: list[tuple[int, int, int, int]]
) -> None:
    lines = [
        "id,lower,upper,size,alignment",
        *(f"b{k},{a},{2**62},{s},{al}" for k, (a, s, _, al) in enumerate(figures)),
    ]
    buffers = read(tmp_path_factory.mktemp("figures"), "\n".join(lines)).buffers
    assert buffers.first.tolist() == [first for first, *_ in figures]
    assert buffers.sizes.tolist() == [size for _, size, *_ in figures]
    assert buffers.alignment.tolist() == [alignment for *_, alignment in figures]


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_published_instances_are_read_line_by_line(path: Path) -> None:
    with path.open(newline="") as file:
        expected = [(row["id"], int(row["lower"]), int(row["upper"]), int(row["size"])) for row in csv.DictReader(file)]
    assert rows(read_buffer_file(path)) == expected


HEAD = "id,lower,upper,size\n"
BAD = {
    "empty": ("", "is empty"),
    "only blank lines": ("\n\r\n \n", "is empty"),
    "unknown column": ("id,lower,upper,size,colour\n", "line 1: unknown column 'colour'; the known columns are id,"),
    "no column": ("id,lower,upper\n", "line 1: there is no column 'size'"),
    "no end": ("id,lower,size\n", "no column 'upper' or 'end'"),
    "a column twice": ("id,id,lower,upper,size\n", "'id' and 'id' mean the same"),
    "two names of one column": ("id,start,lower,upper,size\n", "'start' and 'lower' mean the same"),
    "another separator": ("id;lower;upper;size\na;0;1;2\n", "unknown column 'id;lower;upper;size'"),
    "negative size": (HEAD + "a,0,3,4\nb,0,3,-4\n", "line 3: size is -4; give bytes >= 0"),
    "float size": (HEAD + "a,0,3,4.0\n", "line 2: size is '4.0'; give a whole number"),
    "exponent": (HEAD + "a,0,3,4e3\n", "size is '4e3'"),
    "underscore": (HEAD + "a,0,3,4_000\n", "size is '4_000'"),
    "other digits": (HEAD + "a,0,3,٣\n", "size is '٣'"),
    "two signs": (HEAD + "a,0,3,--3\n", "size is '--3'"),
    "sign alone": (HEAD + "a,0,3,-\n", "size is '-'"),
    "unit": (HEAD + "a,0,3,4KiB\n", "size is '4KiB'"),
    "no size": (HEAD + "a,0,3,\n", "size is ''"),
    "size of 64 bits": (HEAD + f"a,0,3,{2**63}\n", f"size is '{2**63}'; give a whole number of 64 bits"),
    "size of 5000 digits": (HEAD + f"a,0,3,{'9' * 5000}\n", "size is '9999"),
    "sizes that add up": (HEAD + f"a,0,3,{2**61}\nb,0,3,{2**61}\n", "buffers add up to about"),
    "time of 64 bits": (HEAD + f"a,0,{2**63},4\n", "upper is '9223"),
    "time too late": (HEAD + f"a,0,{2**62 + 1},4\n", "between plus and minus"),
    "end before start": (HEAD + "a,5,3,4\n", "line 2: upper is 3; the live range ends before its lower"),
    "inclusive end before start": ("id,start,end,size\na,5,4,4\n", "end is 4; the live range ends before its start"),
    "too few fields": (HEAD + "a,0,3,4\n\nb,0,3\n", "line 4: it has 3 fields, the header has 4"),
    "too many fields": (HEAD + "a,0,3,4,5\n", "line 2: it has 5 fields"),
    "ids twice": (HEAD + "a,0,3,4\nb,0,3,4\na,1,3,4\n", "line 4: id 'a' is also on line 2"),
    "carriage return": (HEAD + "a\rb,0,3,4\n", "line 2: a carriage return inside an unquoted field"),
    "no id": (HEAD + ",0,3,4\n", "line 2: the id is empty"),
    "open quote": (HEAD + '"a,0,3,4\nb,0,3,4\n', "line 2: it does not end"),
    "stray quote": (HEAD + 'a"b"c,0,3,4\n', "line 2: a quote inside an unquoted field"),
    "text behind a quote": (HEAD + '"a"b,0,3,4\n', "a quote inside an unquoted field"),
    "single quote within quotes": (HEAD + '"a"b"c",0,3,4\n', "a quote inside an unquoted field"),
    "not UTF-8": (HEAD.encode() + b"\xff\xfe,0,3,4\n", "line 2: a field is no UTF-8 text"),
    "UTF-16": (PLAIN.encode("utf-16"), "no UTF-8 text"),
    "binary": (bytes(range(256)) * 4, "line 1"),
    "NUL": (b"\0" * 100, "unknown column"),
    "alignment of zero": ("id,lower,upper,size,alignment\na,0,3,4,0\n", "line 2: alignment is 0"),
    "negative offset": ("id,lower,upper,size,offset\na,0,3,4,-1\n", "line 2: offset is -1"),
    "crooked offset": ("id,lower,upper,size,offset,alignment\na,0,3,4,6,4\n", "line 2: offset is 6; it is no multiple"),
    "huge offset": (f"id,lower,upper,size,offset\na,0,3,4,{2**62}\n", "its fixed offset is too large"),
    "gap with a window": ("id,lower,upper,size,gaps\na,0,9,4,3-5@0:2\n", "'3-5@0:2' has a window"),
    "gap without an end": ("id,lower,upper,size,gaps\na,0,9,4,3\n", "line 2: gap '3' is not two steps"),
    "gap backward": ("id,lower,upper,size,gaps\na,0,9,4,5-3\n", "gap '5-3' ends before it starts"),
    "gap of 64 bits": (f"id,lower,upper,size,gaps\na,0,9,4,5-{2**63}\n", "is not two steps"),
}


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD.keys())
def test_a_malformed_file_gives_one_line_with_its_position(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(MalformedInputError) as caught:
        read(tmp_path, text)
    assert str(caught.value).startswith(str(tmp_path / "buffers.csv"))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.binary(max_size=60), st.booleans())
def test_any_bytes_give_buffers_or_an_input_error(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes, after_header: bool
) -> None:
    with suppress(InputError):
        read(tmp_path_factory.mktemp("junk"), (HEAD.encode() if after_header else b"") + junk)


def test_a_record_above_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_file, "MOST_RECORD_BYTES", 64)
    with pytest.raises(MalformedInputError, match="line 2: it does not end within 64 bytes"):
        read(tmp_path, HEAD + "a" * 100 + ",0,3,4\n")
