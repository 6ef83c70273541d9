"""Results in a notebook and on a terminal: short, and a picture where matplotlib is there."""

from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest

from lowtide import compare, frontier, inspect, minimize
from lowtide.core.errors import UsageError
from lowtide.core.memory_picture import MemoryPicture
from lowtide.engine.analysis.memory_picture import memory_picture
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.engine.planning.frontier import Frontier
from lowtide.engine.planning.plan_best_form import plan_best_form
from lowtide.engine.planning.settings import PlanSettings
from tests.engine.planning.programs import GivenProgram
from tests.oracles.residual_chain import residual_chain


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


def test_notebooks_get_a_static_picture_and_a_table_in_which_names_are_text() -> None:
    class Tags(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.tags: set[str] = set()

        def handle_starttag(self, tag: str, attrs: object) -> None:
            self.tags.add(tag)

    graph = _layers("<script>alert(1)</script>")
    result = minimize(graph)
    table = {"table", "caption", "b", "tbody", "tr", "th", "td"}
    for shown in (result.plan, frontier(graph), result, graph, compare(graph, progress=False)):
        parser = Tags()
        parser.feed(shown._repr_html_())
        assert "table" in parser.tags
        assert parser.tags <= table | {"p", "svg", "title", "rect", "path", "text"}
        assert ("svg" in parser.tags) == (shown is not result.plan and not isinstance(shown, Frontier))


def test_notebooks_get_an_inspection_as_a_static_picture_and_its_text_in_which_names_are_text() -> None:
    inspection = inspect(_layers("<script>alert(1)</script>"), progress=False)
    root = ElementTree.fromstring(f"<div>{inspection._repr_html_()}</div>")
    sentence, picture, text = root
    assert (sentence.tag, picture.tag, text.tag) == ("p", "{http://www.w3.org/2000/svg}svg", "pre")
    assert (sentence.text or "").startswith("<script>alert(1)</script> needs 13.0 MiB at its peak; largest there: ")
    assert (text.text, len(text)) == (inspection.to_text(), 0)


def test_a_picture_shows_the_peaks_the_budget_and_the_largest_tensors() -> None:
    picture = minimize(_layers(), budget="20 MiB").picture()
    assert picture.sentence == (
        "layers needs 13.0 MiB at its peak, within the budget of 20.0 MiB; largest there: relu x 12 12.0 MiB, "
        "x 1.0 MiB, loss 4 B"
    )
    drawing = ElementTree.fromstring(picture.svg())
    captions = [each.text for each in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert captions == ["before, peak 13.0 MiB", "after, peak 13.0 MiB", "budget 20.0 MiB"]


def test_a_picture_of_a_plan_in_chunks_shows_the_unmodified_program_as_it_runs() -> None:
    program = GivenProgram(_layers(), residual_chain(4))
    result = plan_best_form(program, PlanSettings())
    assert result.form == "in chunks"
    assert result.picture().before.tolist() == memory_picture(program.graph).before.tolist()
    assert max(result.picture().before) == result.baseline_peak_bytes["device"]


@pytest.mark.parametrize("width", [30, 60, 200])
def test_bars_fit_the_terminal_in_at_most_12_lines(width: int) -> None:
    lines = minimize(_layers(), budget="20 MiB").picture().lines(width)
    assert len(lines) <= 12
    assert all(len(line) <= width for line in lines[:-1])
    assert "-" in "".join(lines[:-1])


def test_bars_rise_to_the_peak_and_no_higher() -> None:
    picture = MemoryPicture(name="ramp", space="device", before=np.array([4, 8]), after=np.array([2, 4]))
    *rows, _ = picture.lines(18)
    columns = ["".join(row.partition("|")[2].ljust(11)[k] for row in rows) for k in (0, -1)]
    filled = [sum(char not in " ░" for char in column) for column in columns]
    assert filled == [3, 5]
    assert [len(column.strip()) for column in columns] == [5, 9]


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
