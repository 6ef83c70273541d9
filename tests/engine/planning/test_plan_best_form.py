"""Plans for a program's form in chunks alone, where the program as it stands was planned before."""

from lowtide.engine.plan import Plan
from lowtide.engine.planning.plan_best_form import plan_best_form, plan_in_chunks
from lowtide.engine.planning.settings import PlanSettings
from tests.engine.planning.graphs import two_ops
from tests.engine.planning.programs import GivenProgram
from tests.oracles.residual_chain import residual_chain


def rounded_residual_chain() -> GivenProgram:
    """Return a program that needs less in chunks, and least in chunks that are equal up to rounding."""
    return GivenProgram(two_ops(large=1 << 20), two_ops(large=1 << 14), residual_chain(12))


def test_without_another_form_there_is_no_plan() -> None:
    assert plan_in_chunks(GivenProgram(residual_chain(12)), PlanSettings(effort="fast")) is None


def test_where_only_chunks_fit_it_is_the_plan_of_both_forms() -> None:
    """A budget that only the form in chunks meets is met by the same plan, whether the other form is planned or not."""
    model = GivenProgram(two_ops(large=1 << 20), residual_chain(12))
    settings = PlanSettings(budget="50%", effort="fast")
    found = plan_in_chunks(model, settings)
    assert found is not None
    result, expected = found, plan_best_form(model, settings)
    assert result.graph is expected.graph is model.in_chunks
    assert result.form == expected.form == "in chunks"
    assert result.shortfall is expected.shortfall is None
    assert (result.plan.order().tolist(), result.chunk_cost) == (expected.plan.order().tolist(), expected.chunk_cost)
    assert result.peak_bytes["device"] <= 0.5 * result.baseline_peak_bytes["device"]


def test_chunks_to_rounding_are_taken_only_where_they_are_allowed_and_need_less() -> None:
    model = rounded_residual_chain()
    exact, rounded = (
        plan_best_form(model, PlanSettings(techniques=frozenset(allowed), effort="fast"))
        for allowed in (("reorder", "share"), ("reorder", "share", "rounding"))
    )
    assert (exact.graph, exact.to_rounding) == (model.in_chunks, False)
    assert (rounded.graph, rounded.to_rounding) == (model.rounded, True)
    alike = GivenProgram(model.graph, residual_chain(12), residual_chain(12))
    settings = PlanSettings(techniques=frozenset({"reorder", "share", "rounding"}), effort="fast")
    assert not plan_best_form(alike, settings).to_rounding


def test_the_forms_of_a_program_are_told_apart_and_none_is_made_in_vain() -> None:
    model = rounded_residual_chain()
    assert [form.is_exact for form in model.forms()] == [True, True, False]
    asked = len(model.made)
    assert [form.is_exact for form in model.forms()] == [True, True, False]
    assert len(model.made) == asked
    fresh = rounded_residual_chain()
    own = fresh.form_of(Plan.baseline(fresh.graph))
    assert own is not None
    assert own.is_exact
    assert fresh.made == []
