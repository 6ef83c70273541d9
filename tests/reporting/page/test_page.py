"""The page of a report: whole in one file, true to the library, said in words where something is aggregated."""

import json
import re
from typing import Any

import pytest
from hypothesis import given

from lowtide import holders_at_peak, minimize
from lowtide.engine.analysis import simulate
from lowtide.engine.analysis.folding import fold, stem
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.engine.plan import Plan
from lowtide.reporting.page import rectangles
from lowtide.reporting.page.facts import Facts
from lowtide.reporting.page.figures import figures as figures_of
from lowtide.reporting.page.text import to_text
from lowtide.reporting.page.write import page, pictures
from lowtide.reporting.shortfall import describe_missed
from lowtide.reporting.table import page_width
from tests.examples import examples
from tests.strategies import graphs

BUFFERS = [("x", 10), ("kept", 500), ("mid", 100), ("big", 1000), ("result", 10)]


def data_of(content: bytes) -> dict[str, Any]:
    """Return the data within a page."""
    found = re.search(r'<script type="application/json" id="report">(.*?)</script>', content.decode(), re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def layers(n_layers: int, name: str = "layer") -> Graph:
    """Return activations that a loss at the end reads, one a layer."""
    builder = GraphBuilder("layers")
    held = [builder.add_buffer("x", 2**20, Lifetime.INPUT)]
    for k in range(n_layers):
        held.append(builder.add_buffer(f"{name}_{k}", 2**20))
        source = f"blocks.{k}.act at model.py:7"
        builder.add_op(f"relu_{k}", "relu", reads=[held[-2]], writes=[held[-1]], source=source)
    builder.add_op("loss", "sum", reads=held, writes=[builder.add_buffer("loss", 4, Lifetime.OUTPUT)])
    return builder.build()


@examples(20)
@given(graphs())
def test_the_figures_of_a_page_are_those_of_the_library(graph: Graph) -> None:
    result = minimize(graph)
    data = data_of(page(Facts.of(graph, result.plan)))
    figures, pictures = data["figures"], data["pictures"]
    assert figures["peak_bytes"] == result.peak_bytes
    assert figures["baseline_peak_bytes"] == simulate(graph, Plan.baseline(graph)).peak_bytes
    assert figures["arena_bytes"] == result.arena_bytes
    assert sum(row["size_bytes"] for row in figures["holders"]) == sum(result.peak_bytes.values())
    assert figures["n_moved"] == result.moved_ops
    for space in pictures["spaces"]:
        drawn = space["rectangles"]
        assert drawn is None or drawn["shaded"] == 0
        live = [sum(column[:-2]) for column in zip(*space["after"]["parts"], strict=True)]
        assert max(live) == result.peak_bytes[space["name"]]


def test_the_page_says_where_the_program_has_what_it_names() -> None:
    graph = layers(3)
    data = data_of(page(Facts.of(graph, minimize(graph).plan)))
    assert data["pictures"]["sources"] == {f"relu_{k}": f"blocks.{k}.act at model.py:7" for k in range(3)}
    folded = data["figures"]["holders"][0]
    assert folded["made_at"] == "blocks.*.act at model.py:7"
    assert {member["made_at"] for member in folded["members"]} == set(data["pictures"]["sources"].values())


def test_a_page_asks_nothing_of_the_network() -> None:
    graph = layers(4)
    text = page(Facts.of(graph, minimize(graph).plan)).decode()
    addresses = set(re.findall(r"https?://[\w./-]+", text))
    assert addresses <= {"http://www.w3.org/2000/svg", "https://github.com/leeoniya/uPlot"}
    assert not re.search(r"<(?:link|img|iframe)\b|<script[^>]*\bsrc=|@import|url\(", text)
    assert "default-src 'none'" in text


@pytest.mark.parametrize(
    "name", ["</script><script>alert(1)</script>", "<!--", "\ud800 half", "/*{{page.css}}*/", "a\x00b"]
)
def test_names_from_files_are_data_and_never_markup(name: str) -> None:
    graph = layers(3, name)
    content = page(Facts.of(graph, minimize(graph).plan))
    assert content.count(b"</script>") == page(Facts.of(layers(3), minimize(layers(3)).plan)).count(b"</script>")
    assert any("_0" in each for each in data_of(content)["pictures"]["spaces"][0]["rectangles"]["name"])


def test_what_is_not_drawn_one_by_one_is_counted_and_lies_in_the_shade(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rectangles, "MOST_DRAWN", 3)
    graph = layers(8)
    drawn = data_of(page(Facts.of(graph, minimize(graph).plan)))["pictures"]["spaces"][0]["rectangles"]
    assert len(drawn["first"]) == 3
    assert drawn["shaded"] == 10 - 3
    assert 0 < drawn["drawn_share"] < 1
    cells = sum(drawn["shade"]["length"])
    assert 0 < cells < drawn["shade"]["columns"] * drawn["shade"]["rows"]


def test_many_runs_share_a_column_and_the_peak_is_still_there() -> None:
    graph = layers(9000)
    facts = Facts.of(graph, Plan.baseline(graph))
    data = pictures(facts)["spaces"][0]
    assert data["runs_per_column"] == 3
    assert len(data["before"]["ops"]) == -(-9001 // 3)
    assert facts.peak_bytes == simulate(graph, facts.plan).peak_bytes


def test_repeated_layers_fold_into_one_row_and_no_byte_is_lost() -> None:
    graph = layers(8)
    holders = holders_at_peak(graph, Plan.baseline(graph))
    folds = fold(holders)
    assert [each.label for each in folds] == ["relu x 8", "x", "loss"]
    assert sum(each.size_bytes for each in folds) == sum(holder.size_bytes for holder in holders)
    assert stem("model.layers.3.mlp_12") == "model.layers.mlp"
    assert stem("42") == "42"


def test_a_fold_is_called_by_its_kind_of_op_without_library_and_overload() -> None:
    builder = GraphBuilder("overloads")
    held = [builder.add_buffer(f"b{k}", 2**20) for k in range(4)]
    for k, buffer in enumerate(held):
        kind = "aten.mul.Tensor" if k < 2 else "aten.gelu"
        builder.add_op(f"op_{k}", kind, writes=[buffer], source=f"blocks.{k % 2}.act at model.py:{7 + k // 2}")
    builder.add_op("sum", "sum", reads=held, writes=[builder.add_buffer("out", 4, Lifetime.OUTPUT)])
    graph = builder.build()
    folds = fold(holders_at_peak(graph, Plan.baseline(graph)))
    assert [each.label for each in folds] == ["mul x 2", "gelu x 2", "out"]


def test_the_text_fits_eighty_columns_and_says_whether_the_budget_is_met() -> None:
    graph = layers(12)
    result = minimize(graph, budget="7 MiB", allow={"reorder", "share", "recompute"})
    facts = Facts.of(graph, result.plan, result=result)
    text = to_text(facts)
    assert max(map(len, text.splitlines())) <= page_width()
    assert "budget       7.0 MiB: missed" in text
    assert result.shortfall is not None
    assert " ".join(describe_missed(result).split()) in " ".join(text.split())


def test_a_plan_that_runs_again_says_what_and_at_which_price() -> None:
    builder = GraphBuilder("kept for later")
    x, kept, mid, big, result = (builder.add_buffer(name, size) for name, size in BUFFERS)
    builder.add_op("begin", "begin", writes=[x])
    builder.add_op("cheap", "cheap", reads=[x], writes=[kept], cost=0.25)
    builder.add_op("grow", "grow", reads=[kept], writes=[mid])
    builder.add_op("grow more", "grow", reads=[mid], writes=[big])
    builder.add_op("shrink", "sum", reads=[big, x], writes=[result])
    out = builder.add_buffer("out", 10, Lifetime.OUTPUT)
    builder.add_op("join", "add", reads=[kept, result, x], writes=[out])
    graph = builder.build()
    planned = minimize(graph, budget="1200 B", allow={"reorder", "share", "recompute"}, effort="fast")
    assert planned.shortfall is None
    figures = figures_of(Facts.of(graph, planned.plan))
    assert [row.op for row in figures["reruns"]] == ["cheap"]
    assert figures["n_reruns"] == planned.reruns == 1
    assert figures["extra_cost"] == planned.extra_cost == 0.25
