"""Results in a notebook and on a terminal: short, and a picture where matplotlib is there."""

from html.parser import HTMLParser

import pytest

from lowtide import frontier, minimize
from lowtide.core.errors import UsageError
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime


def _layers(name: str = "layers") -> Graph:
    builder = GraphBuilder(name)
    held = [builder.add_buffer("x", 2**20, Lifetime.INPUT)]
    for k in range(12):
        held.append(builder.add_buffer(f"relu_{k}", 2**20))
        builder.add_op(f"relu_{k}", "relu", reads=[held[-2]], writes=[held[-1]])
    builder.add_op("loss", "sum", reads=held, writes=[builder.add_buffer("loss", 4, Lifetime.OUTPUT)])
    return builder.build()


def test_printed_results_are_one_short_line() -> None:
    graph = _layers()
    result = minimize(graph)
    assert str(result) == "Result('layers': optimal, peak 13.0 MiB -> 13.0 MiB)"
    assert str(result.plan) == f"Plan({result.plan.n_steps} steps, optimal, peak 13.0 MiB)"
    assert str(frontier(graph)).startswith("Frontier(device: ")
    assert "misses the budget by" in str(minimize(graph, budget="1 MiB"))


def test_notebooks_get_tables_in_which_names_are_text() -> None:
    class Tags(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.tags: set[str] = set()

        def handle_starttag(self, tag: str, attrs: object) -> None:
            self.tags.add(tag)

    graph = _layers("<script>alert(1)</script>")
    result = minimize(graph)
    for shown in (result, result.plan, frontier(graph)):
        parser = Tags()
        parser.feed(shown._repr_html_())
        assert parser.tags <= {"table", "caption", "b", "tbody", "tr", "th", "td"}
        assert "table" in parser.tags


def test_a_plot_reaches_the_peak_and_names_what_it_shows() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    result = minimize(_layers(), budget="20 MiB")
    axes = result.plot()
    tops = [path.vertices[:, 1].max() for drawn in axes.collections for path in drawn.get_paths()]
    assert max(tops) == pytest.approx(13.0, abs=1e-5)
    labels = axes.get_legend_handles_labels()[1]
    assert labels == ["inputs", "outputs", "temporaries", "before", "lower bound", "budget"]
    assert result.plot("device", axes) is axes
    with pytest.raises(UsageError, match="unknown memory space 'nowhere'; choose one of device"):
        result.plot("nowhere")
