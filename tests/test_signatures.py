"""All verbs take a program in the same ways, and wrong arguments are refused in one line."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import lowtide
from lowtide.core.errors import LowtideError, UsageError
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime


def _difference(*program: Any) -> object:
    source = program[0] if len(program) == 1 else program
    return lowtide.diff(source, lowtide.read(*program))


VERBS: dict[str, Callable[..., Any]] = {
    "compare": lambda *program: lowtide.compare(*program).graph,
    "diff": _difference,
    "frontier": lowtide.frontier,
    "inspect": lambda *program: lowtide.inspect(*program).graph,
    "measure": lambda *program: lowtide.measure(lowtide.plan(*program).plan, *program),
    "minimize": lambda *program: lowtide.minimize(*program).graph,
    "optimize": lambda *program: lowtide.optimize(*program).result.graph,
    "plan": lambda *program: lowtide.plan(*program).graph,
    "read": lowtide.read,
}


def _model() -> tuple[nn.Module, torch.Tensor]:
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)), torch.randn(4, 8)


def _graph() -> Graph:
    builder = GraphBuilder("one op")
    builder.add_op("make", "make", writes=[builder.add_buffer("y", 100, Lifetime.OUTPUT)])
    return builder.build()


@pytest.mark.parametrize("name", VERBS)
def test_a_model_and_its_input_may_be_two_arguments_or_one_tuple(name: str) -> None:
    model, x = _model()
    apart, together = VERBS[name](model, x), VERBS[name]((model, x))
    assert type(apart) is type(together)
    if isinstance(apart, Graph):
        assert apart.fingerprint == together.fingerprint


def test_a_batch_that_is_a_tuple_has_the_inputs_of_a_module() -> None:
    model, x = _model()
    assert lowtide.minimize(model, (x,)).graph.fingerprint == lowtide.minimize(model, x).graph.fingerprint


def test_a_plan_is_applied_to_a_model_and_its_input() -> None:
    model, x = _model()
    applied = lowtide.apply(lowtide.plan(model, x).plan, model, x)
    assert torch.equal(applied(x), model(x))


WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: lowtide.plan(_model()[0]), "Sequential has no example inputs; pass .function or module, example inputs."),
    (lambda: lowtide.plan(_model()[0].state_dict()), "a state dict has weights and no program; give the model"),
    (lambda: lowtide.measure(*_model()), "Sequential is not a plan; give a plan, or result.plan"),  # pyright: ignore[reportArgumentType]
    (lambda: lowtide.plan(None), "cannot read a NoneType"),
    (lambda: lowtide.open_model(*_model()), "dims is a Tensor; give a program and its inputs as one tuple"),  # pyright: ignore[reportArgumentType]
    (lambda: lowtide.apply(_model(), lowtide.plan(_graph()).plan), "cannot read a Plan"),  # pyright: ignore[reportArgumentType]
]
OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"bugdet": "50%"}, "lowtide.plan has no option 'bugdet'; did you mean 'budget'?"),
    ({"zzz": 1}, "lowtide.plan has no option 'zzz'; it has host, dims"),
    ({"costs": 3}, "costs is an int; give a str"),
    ({"dims": 3}, "dims is an int; give a Mapping"),
    ({"host": 3}, "host is an int; give a Host"),
    ({"device": 3}, "device is an int; give a str"),
    ({"budget": []}, "cannot read .. as a size"),
    ({"budget": 50}, "50 is 50 bytes; write '50%', '50MiB' or '50GiB'"),
    ({"allow": 3}, "unknown technique 3"),
    ({"effort": 3}, "unknown effort 3"),
    ({"scheduler": 3}, "unknown scheduler 3"),
]


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_a_wrong_program_is_refused_in_one_line(call: Callable[[], object], message: str) -> None:
    with pytest.raises(LowtideError, match=message):
        call()


@pytest.mark.parametrize(("options", "message"), OPTIONS)
def test_a_wrong_option_is_refused_in_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        lowtide.plan(_graph(), **options)


def _sum(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return model(x).sum()


def _training_step(budget: Any) -> None:
    model, x = _model()
    lowtide.torch.training_step(model, _sum, torch.optim.SGD(model.parameters()), (x,), budget=budget)


def _compiled(budget: Any) -> None:
    model, x = _model()
    getattr(torch, "compile")(model, backend="lowtide", options={"budget": budget})(x)  # noqa: B009


def _configured(budget: Any) -> None:
    lowtide.torch.configure(budget)


def _fitted_in_jax(budget: Any) -> None:
    jax_numpy: Any = pytest.importorskip("jax.numpy")
    lowtide.jax.fit(jax_numpy.tanh, budget, example_args=(jax_numpy.ones(8),))


def _trained_in_tensorflow(budget: Any) -> None:
    pytest.importorskip("tensorflow")
    lowtide.tensorflow.training_step(None, None, None, budget=budget)


@pytest.mark.parametrize("budget", [50, "50"])
@pytest.mark.parametrize("entry", [_training_step, _compiled, _fitted_in_jax, _trained_in_tensorflow, _configured])
def test_a_budget_without_a_unit_is_refused_at_every_entry(entry: Callable[[Any], None], budget: Any) -> None:
    with pytest.raises(Exception, match="50 is 50 bytes; write '50%', '50MiB' or '50GiB'"):
        entry(budget)


def test_the_budget_of_the_environment_needs_a_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOWTIDE_BUDGET", "50")
    with pytest.raises(UsageError, match="LOWTIDE_BUDGET in the environment: 50 is 50 bytes; write '50%'"):
        lowtide.torch.configure(effort="fast")
