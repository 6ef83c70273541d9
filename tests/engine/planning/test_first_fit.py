"""Whether a program fits: by bounds, or by the first plan that fits; compared with the search for the best plan."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lowtide.engine.graph import Graph
from lowtide.engine.offload import HOST, Host, find_link
from lowtide.engine.planning.first_fit import cannot_fit, first_fit
from lowtide.engine.planning.plan_best_form import plan_best_form
from lowtide.engine.planning.settings import PlanSettings
from lowtide.frameworks.graph_file import GraphModel
from tests.strategies import graphs

RECOMPUTE = frozenset({"reorder", "share", "recompute"})
EVERYTHING = RECOMPUTE | {"offload"}


@pytest.mark.parametrize("techniques", [RECOMPUTE, EVERYTHING])
@given(graph=graphs(), share=st.sampled_from((0.3, 0.5, 0.7, 0.9)))
def test_the_answer_is_that_of_the_search_for_the_best_plan(
    graph: Graph, share: float, techniques: frozenset[str]
) -> None:
    has_host = any(space.name == HOST for space in graph.spaces)
    with_host = graph if has_host or "offload" not in techniques else Host(bandwidth_bytes_per_s=1e9).added_to(graph)
    program = GraphModel(with_host)
    assume("offload" not in techniques or find_link(with_host, 0) is not None)
    settings = PlanSettings(budget=share, techniques=techniques, effort="fast", addresses=False)
    best = plan_best_form(program, settings)
    found = first_fit(program, settings)
    assert found.fits == (best.shortfall is None)
    if found.missed is not None:
        assert found.missed.peak_bytes == best.peak_bytes
    if cannot_fit(program, settings):
        assert best.shortfall is not None
        assert best.shortfall.is_impossible
