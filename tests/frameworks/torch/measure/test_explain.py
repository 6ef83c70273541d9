"""Explained peaks add up and name the user's lines."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn

import lowtide.torch as lt
from lowtide.core.errors import UsageError
from lowtide.frameworks.torch.planning.programs import forget_programs


@pytest.fixture(autouse=True)
def _nothing_planned() -> Iterator[None]:
    torch._dynamo.reset()
    forget_programs()
    yield
    torch._dynamo.reset()
    forget_programs()


class Wide(nn.Module):
    """One tensor is larger than all others together."""

    def __init__(self) -> None:
        super().__init__()
        self.widen = nn.Linear(16, 4096)
        self.narrow = nn.Linear(4096, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the loss."""
        wide = self.widen(x)  # the largest
        return self.narrow(wide.sin()).mean()


def explained(budget: str | None = None) -> lt.Explanation:
    options = {"compiler": "eager", "budget": budget}
    torch.compile(Wide(), backend="lowtide", options=options)(torch.ones(64, 16)).backward()
    return lt.explain()


def test_what_is_held_adds_up_to_the_peak_with_and_without_the_plan() -> None:
    (program,) = explained("90%").programs
    for peaks, figures in (
        (program.planned, program.result.peak_bytes),
        (program.unmodified, program.result.baseline_peak_bytes),
    ):
        assert {peak.space: peak.peak_bytes for peak in peaks} == dict(figures)
        for peak in peaks:
            assert sum(each.holder.size_bytes for each in peak.holders) == peak.peak_bytes


def test_the_largest_tensor_is_named_with_the_line_that_made_it() -> None:
    (program,) = explained().programs
    (peak,) = program.unmodified
    largest = next(each for each in peak.holders if each.op_kind == "aten.addmm")
    assert largest.holder.size_bytes == 64 * 4096 * 4
    assert largest.source is not None
    assert largest.source.file == __file__
    assert largest.source.code == "wide = self.widen(x)  # the largest"
    assert not largest.in_backward
    assert str(largest.source) in str(lt.explain())


def test_gradients_name_the_forward_line_that_they_belong_to() -> None:
    (program,) = explained().programs
    gradients = [each for peak in program.unmodified for each in peak.holders if each.in_backward]
    assert gradients
    assert all(each.source is not None and each.source.file == __file__ for each in gradients)


def test_parameters_stand_in_one_line_apart_from_the_peak() -> None:
    explanation = explained()
    (program,) = explanation.programs
    parameters = 4 * sum(parameter.numel() for parameter in Wide().parameters())
    assert program.persistent_bytes == {"cpu": parameters}
    assert sum("parameters" in line for line in str(explanation).splitlines()) == 1


def test_what_no_plan_can_beat_is_said_with_the_plans_that_it_holds_for() -> None:
    (program,) = explained().programs
    (claim,) = [claim for claim in program.result.claims if claim.figure == "peak"]
    assert claim.sentence in str(program)


def test_without_a_planned_program_there_is_nothing_to_explain() -> None:
    with pytest.raises(UsageError, match="nothing was planned yet"):
        lt.explain()
    with pytest.raises(UsageError, match="cannot explain an object of type Linear"):
        lt.explain(nn.Linear(2, 2))
    with pytest.raises(UsageError, match="cannot explain a OptimizedModule that backend 'eager' compiled"):
        lt.explain(torch.compile(nn.Linear(2, 2), backend="eager"))
    with pytest.raises(UsageError, match="the OptimizedModule has no planned programs yet; call it first"):
        lt.explain(torch.compile(nn.Linear(2, 2), backend="lowtide", options={"compiler": "eager"}))


@pytest.mark.parametrize("form", ["module", "function", "in place"])
def test_what_was_compiled_is_explained_without_the_programs_of_others(form: str) -> None:
    """The model is compiled as a module, as a function or in place, and another model beside it."""
    model, options = Wide(), {"compiler": "eager", "budget": "90%"}
    if form == "in place":
        model.compile(backend="lowtide", options=options)
    of = {"module": model, "function": lambda x: model(x), "in place": None}[form]
    compiled = model if of is None else torch.compile(of, backend="lowtide", options=options)
    other = torch.compile(Wide(), backend="lowtide", options={**options, "budget": "80%"})
    for run in (compiled, other):
        run(torch.ones(64, 16)).backward()
    first, second = lt.explain().programs
    assert lt.explain(compiled).programs == (first,)
    assert lt.explain(other).programs == (second,)


def test_a_module_that_runs_the_graph_of_another_is_explained_by_it() -> None:
    """TorchDynamo compiles once for two modules of one class with equal options."""
    first, second = (
        torch.compile(Wide(), backend="lowtide", options={"compiler": "eager", "budget": "90%"}) for _ in range(2)
    )
    for run in (first, second):
        run(torch.ones(64, 16)).backward()
    assert lt.explain(second).programs == lt.explain(first).programs


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # TorchDynamo looks at it where a graph breaks
def test_programs_are_named_by_function_line_and_count() -> None:
    """Two halves of a broken function, the same for another module, and a lambda."""

    def halves(x: torch.Tensor) -> torch.Tensor:
        first = model.widen(x)
        torch._dynamo.graph_break()
        return model.narrow(first).sum()

    options = {"compiler": "eager"}
    for _ in range(2):
        torch._dynamo.reset()
        model = Wide()
        torch.compile(halves, backend="lowtide", options=options)(torch.ones(2, 16)).backward()
    torch.compile(lambda x: model(x), backend="lowtide", options=options)(torch.ones(2, 16)).backward()
    names = [program.name for program in lt.explain().programs]
    assert len(set(names)) == len(names) == 5
    assert [name.partition(" (test_explain.py:")[0] for name in names] == ["halves"] * 4 + ["<lambda>"]
    assert sum(name.endswith(" #2") for name in names) == 2
