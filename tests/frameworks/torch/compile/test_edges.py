"""Programs at the edges of what `torch.compile` takes: the same values as without it, with a budget and without."""

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from lowtide.frameworks.torch.planning.programs import forget_programs, planned_programs
from lowtide.frameworks.torch.rewrites.checkpoints import REPEATED
from tests.frameworks.torch.compile.edge_autograd import AUTOGRAD, graph_breaks_within_training
from tests.frameworks.torch.compile.edge_inputs import INPUTS
from tests.frameworks.torch.compile.edge_programs import (
    BIT_EQUAL,
    WIDTH,
    WITHOUT_BUDGET,
    Checkpointed,
    Compile,
    Layers,
    Program,
    checkpointed,
    checkpointed_dropout,
    noise,
    selectively_checkpointed,
    train,
    two_steps,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:lowtide. .* misses its budget"),  # floors are high here
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),  # TorchDynamo looks at it
    pytest.mark.filterwarnings("ignore:.*(torch.jit.script_method|autograd.function.Function):DeprecationWarning"),
]
BUDGETS = (None, "60%")
PROGRAMS = BIT_EQUAL | AUTOGRAD | INPUTS


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    forget_programs()
    logging.getLogger("torch._logging").setLevel(logging.ERROR)
    yield
    torch._dynamo.reset()


def with_lowtide(budget: str | None) -> Compile:
    options = {"compiler": "eager", "budget": budget, "effort": "fast"}
    return lambda program, **keywords: torch.compile(program, backend="lowtide", options=options, **keywords)


def with_pytorch(program: Any, **keywords: Any) -> Callable[..., Any]:
    return torch.compile(program, backend="aot_eager", **keywords)


def without(program: Any, **_keywords: Any) -> Callable[..., Any]:
    return program


def run(program: Callable[[Compile], Any], compile_it: Compile) -> Any:
    torch.manual_seed(5)
    return program(compile_it)


@pytest.mark.share_of_cases
@pytest.mark.parametrize(
    ("name", "budget"), [*((name, "60%") for name in PROGRAMS), *((name, None) for name in WITHOUT_BUDGET)]
)
def test_values_are_bit_equal_to_eager(name: str, budget: str | None, digest: Callable[[Any], str]) -> None:
    """Results, gradients, buffers and overwritten inputs do not depend on the plan, and every graph is planned."""
    program = PROGRAMS[name]
    assert digest(run(program, with_lowtide(budget))) == digest(run(program, without))
    assert planned_programs()


@pytest.mark.share_of_cases
@pytest.mark.parametrize("budget", ["100%", "80%", "70%", "50%"])
@pytest.mark.parametrize("name", ["dropout", "other_random_draws"])
def test_random_draws_are_never_made_again(name: str, budget: str, digest: Callable[[Any], str]) -> None:
    """Gradients use the very masks of the forward pass at any budget."""
    assert digest(run(BIT_EQUAL[name], with_lowtide(budget))) == digest(run(BIT_EQUAL[name], without))


def half_precision(compile_it: Compile) -> Any:
    """Autocast with dropout: PyTorch's compiled dropout rounds differently from eager in half precision."""
    model = Layers(rate=0.1)
    compiled = compile_it(model)

    def forward(batch: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return compiled(batch)

    return train(model, forward, noise(64, WIDTH), noise(64, WIDTH, seed=1))


def compiled_optimizers(compile_it: Compile) -> Any:
    """Optimizer steps, which PyTorch rounds differently when they are compiled."""
    models = [Layers(2), Layers(2)]
    optimizers = [torch.optim.AdamW(models[0].parameters()), torch.optim.SGD(models[1].parameters(), 0.1, 0.9)]
    for model, optimizer in zip(models, optimizers, strict=True):
        step = compile_it(optimizer.step)
        for seed in range(2):
            optimizer.zero_grad()
            model(noise(8, WIDTH, seed=seed)).pow(2).sum().backward()
            step()
    return [list(model.parameters()) for model in models]


def merged_computations(compile_it: Compile) -> Any:
    """Resizing an image computes equal positions for rows and columns, which are merged, and looks at them twice."""
    image = noise(2, 3, 4, 4).requires_grad_()
    resize = partial(nn.functional.interpolate, size=(3, 3), mode="bilinear", align_corners=True)
    result = compile_it(lambda given: resize(given) * 2)(image)
    result.pow(2).sum().backward()
    return result.detach(), image.grad


@pytest.mark.share_of_cases
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize(
    "program",
    [half_precision, compiled_optimizers, merged_computations, graph_breaks_within_training],
    ids=lambda program: program.__name__,
)
def test_values_are_bit_equal_to_pytorchs_own_backend(
    program: Program, budget: str | None, digest: Callable[[Any], str]
) -> None:
    """Where compiling alone changes the rounding, planning changes nothing more."""
    assert digest(run(program, with_lowtide(budget))) == digest(run(program, with_pytorch))
    assert planned_programs()


class SparseEmbedding(nn.Module):
    """A sparse gradient below, dropout above."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.layers = nn.Embedding(50, WIDTH, sparse=True), Layers(rate=0.3)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.layers(self.embedding(tokens))


class Selecting(nn.Module):
    """Rows chosen by their values."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = Layers()

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        value = self.layers(value)
        return value[value.sum(1) > 0]


@pytest.mark.share_of_cases
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize(
    ("model", "batch", "reason"),
    [
        (SparseEmbedding, torch.arange(40), "only strided ones are planned"),
        (Selecting, noise(64, WIDTH), "depends on values"),
    ],
    ids=["sparse gradient", "size from values"],
)
def test_what_cannot_be_planned_is_left_to_pytorch_with_a_reason(
    model: Callable[[], nn.Module], batch: torch.Tensor, reason: str, budget: str | None, digest: Callable[[Any], str]
) -> None:
    """One warning says what and why; the results are those of the program."""

    def program(compile_it: Compile) -> Any:
        made = model()
        return [
            (loss, [gradient.to_dense() for gradient in gradients])
            for loss, gradients, _ in train(made, compile_it(made), batch)
        ]

    with (
        torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True),
        pytest.warns(UserWarning, match=f"left to PyTorch's own partitioner.*{reason}"),
    ):
        planned = run(program, with_lowtide(budget))
    assert digest(planned) == digest(run(program, without))
    assert not planned_programs()


def test_a_second_derivative_is_refused_as_pytorch_does() -> None:
    """AOTAutograd's message comes through."""
    value = torch.ones(4, requires_grad=True)
    compiled = with_lowtide(None)(lambda given: (given.sin() * given.exp()).sum())
    (gradient,) = torch.autograd.grad(compiled(value), value, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        gradient.sum().backward()


@pytest.mark.parametrize("program", [checkpointed, checkpointed_dropout, selectively_checkpointed])
def test_without_a_budget_checkpointed_regions_run_again_and_save_memory(program: Callable[[Compile], Any]) -> None:
    """The plan holds less than the same model's plan without checkpoints, by running more."""
    rate = 0.0 if program is checkpointed else 0.3
    run(
        lambda compile_it: two_steps(nn.Sequential(*(Layers(3, rate) for _ in range(3))), compile_it),
        with_lowtide(None),
    )
    run(program, with_lowtide(None))
    plain, chosen = planned_programs()
    assert chosen.result.peak_bytes["cpu"] < 0.8 * plain.result.peak_bytes["cpu"]
    assert any(REPEATED in node.meta for node in chosen.module.graph.nodes)
    assert chosen.result.reruns == 0


@pytest.mark.parametrize("budget", [None, "60%"])
def test_what_a_policy_must_save_runs_once(budget: str | None) -> None:
    """The selective policy saves all products of the forward pass: each runs exactly once."""
    run(selectively_checkpointed, with_lowtide(budget))
    (planned,) = planned_programs()
    products = planned.module.graph.find_nodes(op="call_function", target=torch.ops.aten.addmm.default)
    assert len(products) == sum(len(block.layers) for block in Checkpointed().blocks)


def test_dynamic_sizes_are_planned_again_beyond_a_power_of_two() -> None:
    """With a budget, sizes in the bucket of the first share its plan; without one, all sizes do."""
    sizes = (64, 60, 33, 40, 17, 20, 100)
    planned: dict[str | None, list[int]] = {}
    for budget in (None, "70%"):
        torch._dynamo.reset()
        forget_programs()
        model = Layers()
        compiled = with_lowtide(budget)(model, dynamic=True)
        planned[budget] = []
        for size in sizes:
            train(model, compiled, noise(size, WIDTH))
            planned[budget].append(len(planned_programs()))
    assert planned == {None: [1, 1, 1, 1, 1, 1, 1], "70%": [1, 1, 1, 1, 2, 2, 3]}
