"""Documents: one door for graph, plan, costs and proof files, the same refusals behind each."""

import gzip
import json
import os
import tracemalloc
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide import _native
from lowtide.core import documents
from lowtide.core.documents import document_pieces, read_document
from lowtide.core.errors import InputError, MalformedInputError
from lowtide.engine.graph import read_graph_file


class _Pairs(list[tuple[str, Any]]):
    """An object as it is written: keys in order, repeats and all."""


_KEYS = st.sampled_from(["a", "b", "aa", "\u00e4", "\U0001d11e", '"', "\\", "\n", "", "\\u0061"])
_VALUES = st.recursive(
    st.none() | st.integers(0, 9) | _KEYS,
    lambda inner: st.lists(inner, max_size=3) | st.lists(st.tuples(_KEYS, inner), max_size=4).map(_Pairs),
)


def _text(value: Any, ascii_only: bool) -> str:
    if isinstance(value, _Pairs):
        fields = (f"{json.dumps(key, ensure_ascii=ascii_only)} : {_text(each, ascii_only)}" for key, each in value)
        return "{" + ",".join(fields) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_text(each, not ascii_only) for each in value) + "]"
    return json.dumps(value, ensure_ascii=ascii_only)


def _repeats(text: str) -> set[str]:
    """The slow twin: the keys that Python's own parser sees twice in one object."""
    found: set[str] = set()

    def look(pairs: list[tuple[str, Any]]) -> None:
        keys = [key for key, _ in pairs]
        found.update(key for key in keys if keys.count(key) > 1)

    json.loads(text, object_pairs_hook=look)
    return found


@given(value=_VALUES, ascii_only=st.booleans())
def test_a_repeated_key_is_found_exactly_if_pythons_parser_sees_one(value: Any, ascii_only: bool) -> None:
    text = _text(value, ascii_only)
    content = text.encode()
    begin, end = _native.repeated_key(np.frombuffer(content, np.uint8))
    repeats = _repeats(text)
    assert (begin >= 0) == bool(repeats)
    if repeats:
        assert json.loads(b'"' + content[begin:end] + b'"') in repeats


@given(content=st.binary(max_size=60) | st.text(alphabet='{}[]":\\,u0dD8a', max_size=60).map(str.encode))
def test_whatever_the_bytes_nothing_outside_them_is_read(content: bytes) -> None:
    begin, end = _native.repeated_key(np.frombuffer(content, np.uint8))
    assert (begin, end) == (-1, -1) or 0 < begin <= end <= len(content)


def test_a_repeated_key_is_named_whatever_the_document(tmp_path: Path) -> None:
    path = tmp_path / "twice.json"
    path.write_text('{"a": {"x": 1, "y": 2, "\\u0078": 3}}')
    with pytest.raises(MalformedInputError, match=r"no table: key '\\\\u0078' occurs twice in one object"):
        read_document(path, dict[str, dict[str, int]], "no table")


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b'{"a":"\xff"}', b'{"a":1', b"[" * 10**6, b'{"a":{}}'])
def test_what_is_no_document_is_malformed(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "none.json"
    path.write_bytes(content)
    with pytest.raises(MalformedInputError, match=r"none\.json: no table: "):
        read_document(path, dict[str, int], "no table")


def test_a_document_of_another_kind_is_named_as_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    path.write_text('{"lowtide_plan": 1, "steps": []}')
    with pytest.raises(MalformedInputError, match=r"not a valid graph file: it is a plan file; check the order"):
        read_graph_file(path)


def test_as_many_values_as_the_limit_are_read_and_one_more_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "MOST_VALUES", 1000)
    for count in (1000, 1001):
        (tmp_path / f"{count}.json.gz").write_bytes(gzip.compress(msgspec.json.encode([0] * count)))
    assert len(read_document(tmp_path / "1000.json.gz", list[int], "no list")) == 1000
    with pytest.raises(InputError, match="more than 1000 values"):
        read_document(tmp_path / "1001.json.gz", list[int], "no list")


def test_few_compressed_bytes_take_no_more_memory_than_the_limit_lets_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty kilobytes unpack to ten million numbers; they are not even all unpacked."""
    monkeypatch.setattr(documents, "MOST_VALUES", 10**6)
    bomb = tmp_path / "bomb.graph.json.gz"
    bomb.write_bytes(
        gzip.compress(b'{"lowtide_graph":1,"name":"g","buffers":[],"ops":[{"reads":[0' + b",0" * 10**7 + b"]}]}")
    )
    tracemalloc.start()
    with pytest.raises(InputError, match="more than 1000000 values"):
        read_graph_file(bomb)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert bomb.stat().st_size < 25_000
    assert peak < 2**23


def test_a_pipe_is_refused_and_nobody_waits_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", Path("/dev/null"), tmp_path):
        with pytest.raises(InputError, match="cannot read"):
            read_document(place, list[int], "no list")


@pytest.mark.parametrize("broken", range(5))
def test_what_is_wrong_deep_in_a_long_list_is_named_by_its_place_in_the_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: int
) -> None:
    """Long lists are decoded in pieces, of two here."""
    monkeypatch.setattr(documents, "PIECE", 2)
    ops: list[dict[str, Any]] = [{"name": f"o{op}", "kind": "k", "reads": [], "writes": []} for op in range(5)]
    graph = {"lowtide_graph": 1, "name": "g", "buffers": [], "ops": ops}
    path = tmp_path / "g.graph.json"
    path.write_bytes(msgspec.json.encode(graph))
    assert read_graph_file(path).n_ops == 5
    ops[broken]["reads"] = "none"
    path.write_bytes(msgspec.json.encode(graph))
    with pytest.raises(MalformedInputError, match=rf"`\$\.ops\[{broken}\]\.reads`"):
        read_graph_file(path)
    path.write_bytes(msgspec.json.encode({**graph, "ops": 5}))
    with pytest.raises(MalformedInputError, match=r"Expected `array`, got `int` - at `\$\.ops`"):
        read_graph_file(path)


@given(st.lists(st.lists(st.integers(), max_size=3), max_size=4), st.dictionaries(st.text(), st.none() | st.text()))
def test_a_document_written_in_pieces_is_the_one_written_at_once(
    lists: list[list[int]], others: dict[str, str | None]
) -> None:
    whole = {**others, "long list": list(chain.from_iterable(lists)), "last": 1}
    pieces = {**others, "long list": iter(lists), "last": 1}
    assert b"".join(document_pieces(pieces)) == msgspec.json.encode(whole)
