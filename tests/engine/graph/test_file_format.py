"""Graph files: what is written is read back, whatever the graph."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given

from lowtide.core.errors import GraphError, InputError, UsageError
from lowtide.engine.graph import Graph, read_graph_file, write_graph_file
from tests.golden.every_feature import every_feature_graph
from tests.oracles.graph_text import format_graph
from tests.strategies import graphs, random_graph


@given(graphs())
def test_a_graph_survives_its_file(tmp_path_factory: pytest.TempPathFactory, graph: Graph) -> None:
    path = tmp_path_factory.getbasetemp() / "round.graph.json"
    write_graph_file(graph, path)
    again = read_graph_file(path)
    assert format_graph(again) == format_graph(graph)
    assert again.fingerprint == graph.fingerprint
    assert again.name == graph.name
    assert again.unmodeled == graph.unmodeled
    assert again.cost.tolist() == graph.cost.tolist()
    assert list(again.ops()) == list(graph.ops())
    assert again.spaces == graph.spaces


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_name_that_ends_in_gz_is_compressed_and_both_read_alike(tmp_path: Path, suffix: str) -> None:
    graph, path = random_graph(seed=3, n_ops=50), tmp_path / f"g.graph.json{suffix}"
    write_graph_file(graph, path)
    content = path.read_bytes()
    assert json.loads(gzip.decompress(content) if suffix else content)["lowtide_graph"] == 1
    assert read_graph_file(path).fingerprint == graph.fingerprint


def test_defaults_need_not_be_written(tmp_path: Path) -> None:
    path = tmp_path / "g.graph.json"
    path.write_text(
        '{"lowtide_graph": 1, "name": "n", "buffers": [{"name": "b", "size_bytes": 8, "class": "output"}],'
        ' "ops": [{"name": "o", "kind": "k", "reads": [], "writes": [0]}]}'
    )
    graph = read_graph_file(path)
    assert [space.name for space in graph.spaces] == ["device"]
    assert graph.cost.tolist() == [1.0]
    assert graph.pure.tolist() == [True]
    assert graph.ordered.tolist() == [False]


def test_callees_of_callees_are_found_in_any_order_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "g.graph.json"
    leaf = {"lowtide_graph": 1, "name": "leaf", "buffers": [], "ops": []}
    call = {"name": "o", "kind": "call", "reads": [], "writes": [], "callees": ["leaf"]}
    middle = {**leaf, "name": "middle", "ops": [call]}
    top = {**leaf, "ops": [{**call, "callees": ["middle"]}], "graphs": {"middle": middle, "leaf": leaf}}
    path.write_text(json.dumps(top))
    graph = read_graph_file(path)
    assert graph.call_depth == 3
    assert graph.subgraphs["middle"].subgraphs["leaf"].n_ops == 0


def test_a_file_that_is_not_there_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        read_graph_file(tmp_path / "missing.graph.json")


def test_a_folder_in_place_of_a_file_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        read_graph_file(tmp_path)


def test_a_place_that_cannot_be_written_is_a_usage_error_and_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(UsageError, match="cannot write"):
        write_graph_file(every_feature_graph(), tmp_path / "nowhere" / "g.graph.json")
    with pytest.raises(UsageError, match="cannot write"):
        write_graph_file(every_feature_graph(), tmp_path / "taken")
    assert [entry.name for entry in tmp_path.iterdir()] == ["taken"]


def test_an_invalid_graph_is_reported_with_the_file_it_came_from(tmp_path: Path) -> None:
    path = tmp_path / "bad.graph.json"
    path.write_text(
        '{"lowtide_graph": 1, "name": "n", "buffers": [{"name": "b", "size_bytes": 8, "class": "output"}], "ops": []}'
    )
    with pytest.raises(GraphError, match=r"bad\.graph\.json: .*never written"):
        read_graph_file(path)
