"""The printed form and both file formats stay as they are, to the byte, unless someone means to change them."""

from pathlib import Path

from lowtide.engine.graph import read_graph_file, write_graph_file
from lowtide.engine.plan import read_plan_file, write_plan_file
from tests.golden.every_feature import every_feature_graph, every_feature_plan
from tests.oracles.graph_text import format_graph
from tests.oracles.plans import claim

HERE = Path(__file__).parent


def test_the_printed_form_of_a_graph_is_the_golden_one() -> None:
    assert format_graph(every_feature_graph()) == (HERE / "every_feature.txt").read_text(encoding="utf-8")


def test_a_written_graph_file_is_the_golden_one(tmp_path: Path) -> None:
    write_graph_file(every_feature_graph(), tmp_path / "g.graph.json")
    assert (tmp_path / "g.graph.json").read_bytes() == (HERE / "every_feature.graph.json").read_bytes()


def test_the_golden_graph_file_reads_as_the_graph_it_was_written_from() -> None:
    graph = read_graph_file(HERE / "every_feature.graph.json")
    assert format_graph(graph) == format_graph(every_feature_graph())
    assert graph.fingerprint == every_feature_graph().fingerprint


def test_a_written_plan_file_is_the_golden_one(tmp_path: Path) -> None:
    graph = every_feature_graph()
    write_plan_file(claim(graph, every_feature_plan(graph)), tmp_path / "p.plan.json", graph)
    assert (tmp_path / "p.plan.json").read_bytes() == (HERE / "every_feature.plan.json").read_bytes()


def test_the_golden_plan_file_is_read_and_verified() -> None:
    graph = every_feature_graph()
    plan = read_plan_file(HERE / "every_feature.plan.json", graph)
    assert list(plan.steps()) == list(every_feature_plan(graph).steps())
    assert plan.peak_bytes == {"device": 356, "host": 160}
