"""Plans for a program's form in chunks alone, where the program as it stands was planned before."""

from lowtide.graph import Graph
from lowtide.planning.chunked import plan_in_chunks, plan_model
from lowtide.planning.settings import PlanSettings
from tests.oracles.residual_chain import residual_chain
from tests.planning.graphs import two_ops


class _Model:
    chunks_take_time = False

    def __init__(self, graph: Graph, in_chunks: Graph | None) -> None:
        self.graph = graph
        self.in_chunks = in_chunks


def test_without_another_form_there_is_no_plan() -> None:
    assert plan_in_chunks(_Model(residual_chain(12), None), PlanSettings(effort="fast")) is None


def test_where_only_chunks_fit_it_is_the_plan_of_both_forms() -> None:
    """A budget that only the form in chunks meets is met by the same plan, whether the other form is planned or not."""
    model = _Model(two_ops(large=1 << 20), residual_chain(12))
    settings = PlanSettings(budget="50%", effort="fast")
    found = plan_in_chunks(model, settings)
    assert found is not None
    form, result = found
    expected_form, expected = plan_model(model, settings)
    assert form is expected_form is model.in_chunks
    assert result.shortfall is expected.shortfall is None
    assert (result.plan.order().tolist(), result.chunk_cost) == (expected.plan.order().tolist(), expected.chunk_cost)
    assert result.peak_bytes["device"] <= 0.5 * result.baseline_peak_bytes["device"]
