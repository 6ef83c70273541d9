"""The costs file: what is written is read again, and a file that does not fit is refused in one line."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from lowtide.core.errors import LowtideError, MalformedInputError
from lowtide.engine.costs import Prices, costs_schema, price, read_costs_file, write_costs_file
from lowtide.engine.graph import Graph, GraphBuilder
from tests.strategies import random_graph


def _graph() -> Graph:
    builder = GraphBuilder("two")
    builder.add_op("one", "op")
    builder.add_op("two", "op")
    return builder.build()


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_what_is_written_is_read_again_to_the_last_bit(tmp_path: Path, suffix: str) -> None:
    for seed in range(5):
        graph = random_graph(seed, 40)
        seconds = np.random.default_rng(seed).random(graph.n_ops)
        callees = {name: Prices(profile="measured", seconds=inner.cost) for name, inner in graph.subgraphs.items()}
        estimated = tuple(graph.op_names[:2])
        prices = Prices(profile="measured", seconds=seconds, callees=callees, device="a laptop", estimated=estimated)
        path = tmp_path / f"device.costs.json{suffix}"
        write_costs_file(graph, prices, path)
        read = price(graph, "measured", costs_path=path)
        assert (read.profile, read.device, read.estimated) == ("measured", "a laptop", estimated)
        assert read.seconds.tolist() == seconds.tolist()
        assert {name: inner.seconds.tolist() for name, inner in read.callees.items()} == {
            name: inner.cost.tolist() for name, inner in graph.subgraphs.items()
        }
        if not suffix:
            jsonschema.validate(json.loads(path.read_bytes()), costs_schema())


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"one": 1.0}, r"has no time for op 'two' of graph 'two' \(1 are missing\)"),
        ({"one": 1.0, "two": 2.0, "three": 3.0}, "prices op 'three', which graph 'two' does not have"),
        ({"one": 1.0, "two": -2.0}, "not a valid costs file"),
        ({"one": 1.0, "two": None}, "not a valid costs file"),
        ({"one": 1.0, "two": 1e309}, "costs"),
    ],
)
def test_a_file_that_prices_other_ops_or_no_numbers_is_refused(
    tmp_path: Path, record: dict[str, Any], message: str
) -> None:
    path = tmp_path / "x.costs.json"
    path.write_text(json.dumps({"lowtide_costs": 1, "device": "d", "seconds": record}).replace("Infinity", "1e309"))
    with pytest.raises(MalformedInputError, match=message):
        read_costs_file(path, _graph())


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"lowtide_costs": 2, "device": "", "seconds": {}}', '{"lowtide_graph": 1}', "\x00", "[" * 9999],
)
def test_no_costs_file_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.costs.json"
    path.write_text(text)
    with pytest.raises(LowtideError) as raised:
        read_costs_file(path, _graph())
    assert "\n" not in str(raised.value)


def test_unknown_callees_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.costs.json"
    callees = {"body": {"op": 1.0}}
    record = {"lowtide_costs": 1, "device": "d", "seconds": {"one": 1, "two": 2}, "callees": callees}
    path.write_text(json.dumps(record))
    with pytest.raises(MalformedInputError, match="prices callee 'body', which graph 'two' does not have"):
        read_costs_file(path, _graph())
