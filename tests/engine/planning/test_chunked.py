"""Plans for a program's form in chunks alone, where the program as it stands was planned before."""

from lowtide.engine.graph import Graph
from lowtide.engine.planning.chunked import forms_of, is_to_rounding, plan_in_chunks, plan_model
from lowtide.engine.planning.settings import PlanSettings
from tests.engine.planning.graphs import two_ops
from tests.oracles.residual_chain import residual_chain


class _Model:
    chunks_take_time = False

    def __init__(self, graph: Graph, in_chunks: Graph | None) -> None:
        self.graph = graph
        self.in_chunks = in_chunks


class _Roundable(_Model):
    """A program with other chunks, which equal it to rounding."""

    def __init__(self, graph: Graph, in_chunks: Graph, rounded: Graph) -> None:
        super().__init__(graph, in_chunks)
        self.to_rounding = _Model(graph, rounded)


def rounded_residual_chain() -> _Roundable:
    """Return a program that needs less in chunks, and least in chunks that equal it to rounding."""
    return _Roundable(two_ops(large=1 << 20), two_ops(large=1 << 14), residual_chain(12))


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


def test_chunks_to_rounding_are_taken_only_where_they_are_allowed_and_need_less() -> None:
    model = rounded_residual_chain()
    exact, rounded = (
        plan_model(model, PlanSettings(techniques=frozenset(allowed), effort="fast"))
        for allowed in (("reorder", "share"), ("reorder", "share", "rounding"))
    )
    assert (exact[0], exact[1].to_rounding) == (model.in_chunks, False)
    assert (rounded[0], rounded[1].to_rounding) == (model.to_rounding.in_chunks, True)
    alike = _Roundable(model.graph, residual_chain(12), residual_chain(12))
    settings = PlanSettings(techniques=frozenset({"reorder", "share", "rounding"}), effort="fast")
    assert not plan_model(alike, settings)[1].to_rounding


def test_the_forms_of_a_program_are_told_apart_and_none_is_made_in_vain() -> None:
    model = rounded_residual_chain()
    own, exact, rounded = forms_of(model)
    assert [is_to_rounding(form, model) for form in (own, exact, rounded)] == [False, False, True]
    del model.in_chunks  # asking for it would fail
    assert not is_to_rounding(own, model)
