"""A planned training step equals the plain one bit for bit, over several steps, for any valid order."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

import lowtide.torch as lt
from lowtide.core.errors import UnsupportedError, UsageError
from lowtide.engine.analysis import simulate
from lowtide.engine.plan import Plan

N_STEPS = 3


class ConvNet(nn.Module):
    """Convolution, batch normalization, dropout, in-place activation."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Dropout(0.3), nn.MaxPool2d(2)
        )
        self.head = nn.Linear(8 * 4 * 4, 5)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(images).flatten(1))


class TiedModel(nn.Module):
    """An embedding whose weight is also the output projection, as language models have it."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.mixer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
        self.head = nn.Linear(16, 50, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.mixer(self.embedding(tokens)))


class Checkpointed(nn.Module):
    """Dropout inside an activation checkpoint: its second run has to draw the same mask."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(12, 24), nn.Dropout(0.5), nn.GELU(), nn.Linear(24, 5))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.utils.checkpoint.checkpoint(self.block, images, use_reentrant=False)


def mlp() -> nn.Module:
    """Return a plain multi-layer perceptron on 12 features and 5 classes."""
    return nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.LayerNorm(32), nn.Linear(32, 5))


def classify(model: nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the cross entropy over classes in the last dimension."""
    return nn.functional.cross_entropy(model(inputs).flatten(0, -2), labels.flatten())


def images(seed: int) -> tuple[torch.Tensor, ...]:
    """Return a batch of small images."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(4, 3, 8, 8, generator=generator), torch.randint(0, 5, (4,), generator=generator)


def tokens(seed: int) -> tuple[torch.Tensor, ...]:
    """Return a batch of token sequences and their next tokens."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(0, 50, (2, 10), generator=generator)
    return drawn[:, :-1].contiguous(), drawn[:, 1:].contiguous()


def features(seed: int) -> tuple[torch.Tensor, ...]:
    """Return a batch of feature rows."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(6, 12, generator=generator), torch.randint(0, 5, (6,), generator=generator)


def clip(parameters: list[torch.Tensor]) -> None:
    """Clip the gradients' norm."""
    nn.utils.clip_grad_norm_(parameters, 0.5)


Optimizers: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adamw": lambda p: torch.optim.AdamW(p),
    "adamw-foreach": lambda p: torch.optim.AdamW(p, foreach=True),
    "adamw-fused": lambda p: torch.optim.AdamW(p, fused=True),
    "adam-amsgrad": lambda p: torch.optim.Adam(p, amsgrad=True, weight_decay=0.1),
    "adamw-tensor-lr": lambda p: torch.optim.AdamW(p, lr=torch.tensor(1e-2), foreach=False, capturable=False),
    "nadam": lambda p: torch.optim.NAdam(p),
    "adamax": lambda p: torch.optim.Adamax(p),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "sgd-momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "sgd-foreach": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=True),
    "sgd-fused": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr_decay=0.1, initial_accumulator_value=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, momentum=0.5, centered=True),
    "adadelta": lambda p: torch.optim.Adadelta(p),
}

Models: dict[str, tuple[Callable[[], nn.Module], Callable[[int], tuple[torch.Tensor, ...]]]] = {
    "mlp": (mlp, features),
    "conv": (ConvNet, images),
    "tied": (TiedModel, tokens),
    "checkpoint": (Checkpointed, features),
}


def make_step(model: str, optimizer: str, **options: Any) -> lt.TrainingStep:
    """Return a fresh training step with fixed random weights."""
    torch.manual_seed(1)
    module = Models[model][0]().train()
    return lt.TrainingStep(module, classify, Optimizers[optimizer](module.parameters()), **options)


def states(step: lt.TrainingStep) -> list[Any]:
    """Return everything a step may change, optimizer state included."""
    state = [dict(step.optimizer.state.get(parameter, {})) for parameter in step.parameters()]
    return [dict(step.model.state_dict()), [{k: v for k, v in entry.items() if v is not None} for entry in state]]


def run_steps(
    step: Callable[..., Any], owner: lt.TrainingStep, batches: Callable[[int], Any], digest: Any
) -> list[str]:
    """Run a few steps and digest result, state and random state after each."""
    torch.manual_seed(7)
    found: list[str] = []
    for seed in range(N_STEPS):
        loss = step(*batches(seed))
        found.append(digest([loss, states(owner), torch.get_rng_state()]))
    return found


@dataclass(frozen=True)
class Prepared:
    """A training step, captured, with what it starts from."""

    step: lt.TrainingStep
    start: dict[str, torch.Tensor]
    batches: Callable[[int], tuple[torch.Tensor, ...]]
    captured: Any

    def restart(self) -> None:
        """Take the model back to its first weights, and the optimizer to before its first step."""
        self.step.model.load_state_dict(self.start)
        self.step.optimizer.state.clear()
        self.step.optimizer.zero_grad()


CASES = [
    *(("mlp", name) for name in Optimizers),
    *((name, "adamw") for name in Models if name != "mlp"),
    ("conv", "adamw-fused"),
    ("tied", "adamw-foreach"),
    ("tied", "adamw-fused"),
    ("tied", "sgd-momentum"),
]


def named(case: tuple[str, str, bool]) -> str:
    """Return what a case is called."""
    model, optimizer, clipped = case
    return f"{model}-{optimizer}{'-clipped' * clipped}"


@pytest.fixture(scope="module")
def prepared(request: pytest.FixtureRequest) -> Prepared:
    """Give a step that was captured once: whatever runs it takes it back to its start first."""
    model, optimizer, clipped = request.param
    step = make_step(model, optimizer, **({"before_update": clip} if clipped else {}))
    start = deepcopy(step.model.state_dict())
    return Prepared(step, start, Models[model][1], lt.capture((step, Models[model][1](0))))


@pytest.mark.share_of_cases
@pytest.mark.parametrize(
    "prepared", [(*case, clipped) for case in CASES for clipped in (False, True)], indirect=True, ids=named
)
def test_every_order_gives_the_bits_of_the_plain_step(prepared: Prepared, plans_of: Any, digest: Any) -> None:
    step, batches = prepared.step, prepared.batches
    prepared.restart()
    expected = run_steps(step, step, batches, digest)
    for plan in plans_of(lt.read(prepared.captured)):
        prepared.restart()
        assert run_steps(lt.apply(plan, prepared.captured), step, batches, digest) == expected


@pytest.mark.share_of_cases
@pytest.mark.parametrize("prepared", [(*case, False) for case in CASES], indirect=True, ids=named)
def test_measured_peak_is_the_simulated_one(prepared: Prepared, plans_of: Any) -> None:
    prepared.restart()
    graph = lt.read(prepared.captured)
    for plan in plans_of(graph, 1):
        predicted = simulate(graph, plan).peak_bytes["cpu"]
        measured = lt.measure_captured(prepared.captured, lt.apply(plan, prepared.captured)).peak_bytes
        assert abs(measured - predicted) <= max(0.02 * predicted, 4096)


def test_capturing_and_measuring_leave_everything_as_it_was(digest: Any) -> None:
    """Parameters, buffers, gradients, optimizer state, modes and random states are the user's."""
    step = make_step("conv", "adamw")
    step(*images(0))  # leaves gradients and optimizer state
    before = [states(step), [p.grad for p in step.parameters()], torch.get_rng_state()]
    identities = [id(tensor) for tensor in [*step.parameters(), *(p.grad for p in step.parameters())]]
    expected = digest(before)
    captured = lt.capture((step, images(1)))
    assert digest(before) == expected
    measured = lt.measure_captured(captured, lt.apply(Plan.baseline(lt.read(captured)), captured))
    original = lt.measure_captured(captured, captured.run_original)
    assert measured.outputs_digest == original.outputs_digest
    assert digest([states(step), [p.grad for p in step.parameters()], torch.get_rng_state()]) == expected
    assert [id(tensor) for tensor in [*step.parameters(), *(p.grad for p in step.parameters())]] == identities


def test_capturing_makes_no_optimizer_state() -> None:
    step = make_step("mlp", "adamw")
    captured = lt.capture((step, features(0)))
    assert not step.optimizer.state
    lt.measure_captured(captured, captured.run_original)
    assert not step.optimizer.state
    assert all(parameter.grad is None for parameter in step.parameters())


def test_updates_may_run_before_the_backward_pass_ends() -> None:
    """No update waits for another parameter's gradient, multi-tensor optimizers included."""
    for optimizer in ("adamw", "adamw-foreach", "adamw-fused", "sgd-fused"):
        step = make_step("mlp", optimizer)
        graph = lt.read((step, features(0)))
        before = [list(row) for row in graph.structure.predecessors]
        gradients_of_first = {
            op for op in range(graph.n_ops) if graph.op_kinds[op] in ("aten.mm", "aten.native_layer_norm_backward")
        }
        last_gradient = max(gradients_of_first)
        updates = [op for op in range(graph.n_ops) if op > last_gradient and len(graph.mutates[op])]

        def ancestors(op: int, before: list[list[int]] = before) -> set[int]:
            found: set[int] = set()
            waiting = [op]
            while waiting:
                for earlier in before[waiting.pop()]:
                    if earlier not in found:
                        found.add(earlier)
                        waiting.append(earlier)
            return found

        assert any(
            last_gradient not in ancestors(op) for op in updates if len(graph.mutates[op]) and graph.reads[op].size > 1
        )


def test_a_learning_rate_given_as_a_tensor_may_change(digest: Any) -> None:
    def run(planned: bool) -> str:
        torch.manual_seed(0)
        model = mlp()
        rate = torch.tensor(0.1)
        step = lt.TrainingStep(model, classify, torch.optim.SGD(model.parameters(), lr=rate))
        call: Callable[..., Any] = step
        if planned:
            captured = lt.capture((step, features(0)))
            call = lt.apply(Plan.baseline(lt.read(captured)), captured)
        for seed in range(3):
            call(*features(seed))
            rate.mul_(0.5)
        return digest(states(step))

    assert run(planned=True) == run(planned=False)


def test_a_changed_setting_of_the_optimizer_is_refused() -> None:
    step = make_step("mlp", "adamw")
    applied = lt.apply(Plan.baseline(lt.read((step, features(0)))), (step, features(0)))
    step.optimizer.param_groups[0]["eps"] = 0.5
    with pytest.raises(UsageError, match="settings changed"):
        applied(*features(0))


def refused(optimizer: Callable[[Any], torch.optim.Optimizer]) -> lt.TrainingStep:
    """Return a step with an optimizer that cannot be captured."""
    model = mlp()
    return lt.TrainingStep(model, classify, optimizer(model.parameters()))


class Counting(torch.optim.SGD):
    """An optimizer that counts its steps in a Python integer."""

    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                count = self.state[parameter].setdefault("count", 0) + 1
                self.state[parameter]["count"] = count
                parameter.add_(parameter.grad, alpha=-0.1 / count)


def test_optimizers_that_are_no_fixed_program_are_refused_with_a_reason() -> None:
    cases: list[tuple[Callable[[Any], torch.optim.Optimizer], type[Exception], str]] = [
        (lambda p: torch.optim.LBFGS(p), UnsupportedError, "closure"),
        (lambda p: Counting(p, lr=0.1), UnsupportedError, "Python value 'count'"),
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.5), UsageError, "run one ordinary step first"),
    ]
    for optimizer, error, message in cases:
        with pytest.raises(error, match=message):
            lt.capture((refused(optimizer), features(0)))


def test_state_that_starts_in_an_unknown_way_is_fine_after_one_ordinary_step(digest: Any) -> None:
    def make() -> lt.TrainingStep:
        torch.manual_seed(0)
        step = refused(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.5))
        step(*features(0))
        return step

    plain, planned = make(), make()
    captured = lt.capture((planned, features(1)))
    lt.apply(Plan.baseline(lt.read(captured)), captured)(*features(1))
    plain(*features(1))
    assert digest(states(planned)) == digest(states(plain))


def test_a_size_may_be_computed_by_tensors_of_numbers() -> None:
    def loss(model: nn.Module, rows: torch.Tensor) -> torch.Tensor:
        value = model(rows)
        pairs = torch.div(value.shape[0], 2, rounding_mode="trunc")
        return value.view(pairs, -1).square().mean()

    model, rows = nn.Linear(6, 6), torch.randn(8, 6)
    step = lt.training_step(model, loss, torch.optim.SGD(model.parameters(), lr=0.0), rows)
    assert torch.equal(step(rows), loss(model, rows).detach())


def test_a_loss_that_is_no_scalar_is_refused() -> None:
    model = mlp()
    step = lt.TrainingStep(model, lambda m, x, _: m(x), torch.optim.SGD(model.parameters()))
    with pytest.raises(UsageError, match="scalar"):
        lt.capture((step, features(0)))


def test_a_loss_function_that_does_not_accept_the_batch_is_refused_with_its_call() -> None:
    model = nn.Linear(4, 3)
    batch = torch.randn(2, 4), torch.zeros(2, dtype=torch.long)
    call = r"positional arguments but 4 were given; the loss function is called as loss_function\(model, \*batch\)$"
    with pytest.raises(UsageError, match=call):
        lt.training_step(model, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters()), batch)


def test_a_type_error_within_a_loss_function_is_not_blamed_on_its_call() -> None:
    model = nn.Linear(4, 3)

    def loss_function(model: nn.Module, value: torch.Tensor) -> torch.Tensor:
        return model(value, value)

    with pytest.raises(UnsupportedError) as caught:
        lt.training_step(model, loss_function, torch.optim.SGD(model.parameters()), (torch.ones(2, 4),))
    assert "is called as" not in str(caught.value)


@pytest.mark.parametrize("budget", ["60 percent", "much"])
def test_an_unreadable_budget_is_refused_with_a_share_and_the_free_memory(budget: str) -> None:
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters())
    with pytest.raises(UsageError, match=f"cannot read '{budget}' as a size; .* 1048576, 60% or \"fit\"$"):
        lt.training_step(model, lambda model, value: model(value).sum(), optimizer, (torch.ones(2, 4),), budget=budget)


def test_arguments_in_another_order_are_refused() -> None:
    """The message names the order, instead of an attribute that a function does not have."""
    model = mlp()
    with pytest.raises(UsageError, match="in this order; the last is a function"):
        lt.TrainingStep(model, torch.optim.SGD(model.parameters()), classify)  # type: ignore[arg-type]


def test_a_parameter_from_elsewhere_is_refused() -> None:
    step = lt.TrainingStep(mlp(), classify, torch.optim.SGD(mlp().parameters()))
    with pytest.raises(UnsupportedError, match="not a parameter of the model"):
        lt.capture((step, features(0)))


def test_an_operator_with_inner_functions_is_refused_by_name_in_one_line() -> None:
    model = nn.Linear(4, 4)

    def loss(model: nn.Module, rows: torch.Tensor) -> torch.Tensor:
        chosen = torch.cond(rows.sum() > 0, lambda rows: model(rows).sin(), lambda rows: model(rows).cos(), (rows,))
        return chosen.mean()

    step = lt.TrainingStep(model, loss, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(UnsupportedError, match=r"^the program calls torch's 'cond'.* use plain operators") as said:
        lt.capture((step, (torch.ones(2, 4),)))
    assert "\n" not in str(said.value)
