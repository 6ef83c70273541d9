"""The fingerprint of a graph changes with everything a plan depends on, and with nothing else."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lowtide.core.errors import InputError
from lowtide.engine.graph import GraphBuilder, Lifetime, read_graph_file, write_graph_file
from tests.golden.every_feature import every_feature_graph

_FREE = ("name", "unmodeled", "lowtide_graph")


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every number, string, bool and list in a JSON value."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, (*path, key))
    elif isinstance(value, list):
        yield path
        for place, inner in enumerate(value):
            yield from _leaves(inner, (*path, place))
    else:
        yield path


def _others(value: Any) -> list[Any]:
    """Return values that differ from a JSON value in one small way."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        return [value + 1, value * 2 + 3, 0]
    if isinstance(value, str):
        return [value + "2", "host", "device", "intermediate", "input", "output", "donated", "persistent"]
    return [value[1:], value[:-1], value[::-1]]


def _changed(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copy = dict(document) if isinstance(document, dict) else list(document)
    copy[path[0]] = _changed(document[path[0]], path[1:], value)
    return copy


def test_every_change_of_a_field_that_leaves_the_graph_valid_changes_the_fingerprint(tmp_path: Path) -> None:
    path = tmp_path / "g.graph.json"
    graph = every_feature_graph()
    write_graph_file(graph, path)
    document = json.loads(path.read_bytes())
    changed_keys: set[str] = set()
    for leaf in _leaves(document):
        value = document
        for key in leaf:
            value = value[key]
        for other in _others(value):
            if other == value or (leaf[-1] == "spaces" and other == []):  # no space means one named "device"
                continue
            path.write_text(json.dumps(_changed(document, leaf, other)))
            try:
                fingerprint = read_graph_file(path).fingerprint
            except InputError:
                continue
            free = leaf[0] in _FREE or (leaf[0] == "graphs" and leaf[2] in _FREE)
            assert (fingerprint == graph.fingerprint) == free, (leaf, other)
            changed_keys.add(next(key for key in reversed(leaf) if isinstance(key, str)))
    must_be_tried = {"size_bytes", "class", "space", "capacity_bytes", "alignment", "host", "kind", "reads", "writes"}
    must_be_tried |= {
        "mutates",
        "after",
        "in_place",
        "scratch_bytes",
        "pure",
        "ordered",
        "cost",
        "flops",
        "device",
        "name",
    }
    assert must_be_tried <= changed_keys


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (("a\0b", "c"), ("a", "b\0c")),
        (("a", "b"), ("b", "a")),
        (("a\n", "b"), ("a", "\nb")),
        (("a', 'b", "c"), ("a", "b', 'c")),
    ],
)
def test_names_are_told_apart_whatever_characters_they_hold(one: tuple[str, str], two: tuple[str, str]) -> None:
    def fingerprint(names: tuple[str, str]) -> str:
        builder = GraphBuilder("g")
        for name in names:
            builder.add_buffer(name, 1, Lifetime.INPUT)
        return builder.build().fingerprint

    assert fingerprint(one) != fingerprint(two)


def test_a_device_with_an_empty_name_is_not_the_same_as_none() -> None:
    def fingerprint(device: str | None) -> str:
        builder = GraphBuilder("g")
        builder.add_op("o", "k", device=device)
        return builder.build().fingerprint

    assert fingerprint("") != fingerprint(None)
