"""A planned step follows Python state as the plain loop does: values that change, and values that the step changes."""

import copy
import itertools
import random
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import lowtide.torch as lt
from lowtide.core.errors import UnsupportedError, UsageError
from lowtide.engine.plan import Plan

N_STEPS = 20
SCALE = 1.0
SETTINGS: dict[str, Any] = {"scale": 1.0, "nested": [1.0]}
CONFIG = types.SimpleNamespace(scale=1.0)
COUNTS = {"calls": 0}
RANDOM = random.Random(3)


class Scaled(nn.Module):
    """A layer with a plain number."""

    factor = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.scale = 1.0
        self.options = {"scale": 1.0}

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.layer(rows) * self.scale * self.options["scale"] * self.factor


class Net(nn.Module):
    """A small network with dropout, with a frozen layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.scaled = Scaled()
        self.dropout = nn.Dropout(0.1)
        self.body: nn.Module = nn.Tanh()
        self.adapter = nn.Linear(6, 6).requires_grad_(False)
        self.last = nn.Linear(6, 3)

    def forward(self, rows: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return scale * self.last(self.adapter(self.body(self.scaled(self.dropout(self.first(rows))))))


def classify(model: nn.Module, rows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the cross entropy, times values of the module and of containers."""
    loss = nn.functional.cross_entropy(model(rows), labels)
    return loss * SCALE * SETTINGS["scale"] * SETTINGS["nested"][0] * CONFIG.scale


def batches(count: int = N_STEPS) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return batches of feature rows and labels."""
    generator = torch.Generator().manual_seed(2)
    return [
        (torch.randn(5, 6, generator=generator), torch.randint(0, 3, (5,), generator=generator)) for _ in range(count)
    ]


Change = Callable[[int, Any], object]
"""Changes a model before a step, by the number of the step."""


def train(
    planned: bool,
    make: Callable[[], nn.Module] = Net,
    loss: Any = classify,
    change: Change = lambda _number, _model: None,
    more: Callable[[nn.Module], list[nn.Parameter]] = lambda _model: [],
    **options: Any,
) -> tuple[list[Any], Any]:
    """Train for some steps and return losses, parameters and random states, and the step."""
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)
    model = make()
    optimizer = torch.optim.SGD([*model.parameters(), *more(model)], lr=0.02, momentum=0.9)
    data = batches()
    step: Any = lt.TrainingStep(model, loss, optimizer, **options)
    if planned:
        step = lt.training_step(model, loss, optimizer, data[0], **options)
    losses: list[torch.Tensor] = []
    for number, batch in enumerate(data):
        change(number, model)
        losses.append(step(*batch))
    draws = [random.random(), np.random.rand(), torch.rand(1)]
    return [losses, [each.detach() for each in model.parameters()], draws], step


def compare(digest: Callable[[Any], str], **given: Any) -> Any:
    """Compare a planned with a plain training, which starts from the same state, and return the planned step."""
    expected, _ = train(False, **given)
    found, step = train(True, **given)
    assert digest(found) == digest(expected)
    return step


def reset_values() -> None:
    """Put the values outside of models back."""
    globals()["SCALE"] = SETTINGS["scale"] = CONFIG.scale = Scaled.factor = 1.0
    SETTINGS["nested"] = [1.0]
    Net.forward.__defaults__ = (1.0,)


@pytest.fixture(autouse=True)
def _values_put_back() -> Iterator[None]:
    reset_values()
    yield
    reset_values()


def unfreeze(number: int, model: Net) -> None:
    model.adapter.requires_grad_(number >= 10)


def set_dropout(number: int, model: Net) -> None:
    model.dropout.p = 0.1 if number < 10 else 0.5


def set_attribute(number: int, model: Net) -> None:
    model.scaled.scale = 1.0 if number < 10 else 0.5


def set_item(number: int, model: Net) -> None:
    model.scaled.options["scale"] = 1.0 if number < 10 else 0.5


def set_class_attribute(number: int, model: Net) -> None:
    Scaled.factor = 1.0 if number < 10 else 0.5


def set_global(number: int, model: Net) -> None:
    globals()["SCALE"] = 1.0 if number < 10 else 0.5


def set_global_item(number: int, model: Net) -> None:
    SETTINGS["scale"] = 1.0 if number < 10 else 0.5


def set_default(number: int, model: Net) -> None:
    Net.forward.__defaults__ = (1.0 if number < 10 else 0.5,)


def set_nested_item(number: int, model: Net) -> None:
    SETTINGS["nested"][0] = 1.0 if number < 10 else 0.5


def set_namespace(number: int, model: Net) -> None:
    CONFIG.scale = 1.0 if number < 10 else 0.5


def add_hook(number: int, model: Net) -> None:
    if number == 10:
        model.first.register_forward_hook(lambda _module, _inputs, output: output * 0.5)


def add_backward_hook(number: int, model: Net) -> None:
    if number == 10:
        model.last.register_full_backward_hook(lambda _module, inputs, _outputs: tuple(2 * each for each in inputs))


def swap_activation(number: int, model: Net) -> None:
    if number == 10:
        model.body = nn.ReLU()


def swap_layer(number: int, model: Net) -> None:
    if number == 10:
        torch.manual_seed(5)
        model.first = nn.Linear(6, 6)


def replace_forward(number: int, model: Net) -> None:
    if number == 10:
        model.body.forward = torch.relu


CHANGES: dict[str, tuple[Change, str]] = {
    "unfreeze": (unfreeze, r"model.adapter.weight.requires_grad \(False -> True\)"),
    "dropout": (set_dropout, r"model.dropout.p \(0.1 -> 0.5\)"),
    "attribute": (set_attribute, r"model.scaled.scale \(1.0 -> 0.5\)"),
    "item": (set_item, r"options\['scale'\]"),
    "class attribute": (set_class_attribute, r"Scaled.factor"),
    "global": (set_global, r"SCALE \(1.0 -> 0.5\)"),
    "global item": (set_global_item, r"SETTINGS\['scale'\]"),
    "nested item": (set_nested_item, r"SETTINGS\['nested'\]\[0\]"),
    "namespace": (set_namespace, r"CONFIG.scale"),
    "default": (set_default, r"forward.__defaults__"),
    "hook": (add_hook, r"model.first._forward_hooks"),
    "backward hook": (add_backward_hook, r"model.last"),
    "activation": (swap_activation, r"model.body"),
    "layer": (swap_layer, r"model.first"),
    "forward": (replace_forward, r"model.body.forward"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_value_leads_to_a_new_program_and_one_warning_that_names_it(
    name: str, digest: Callable[[Any], str]
) -> None:
    change, named = CHANGES[name]
    expected, _ = train(False, change=change)
    reset_values()
    with pytest.warns(UserWarning, match=named) as said:
        found, _ = train(True, change=change)
    assert len(said) == 1
    assert digest(found) == digest(expected)


def test_switching_back_captures_and_plans_nothing(digest: Callable[[Any], str]) -> None:
    captured: list[Any] = []

    def change(number: int, model: Net) -> None:
        model.scaled.scale = 1.0 if number % 2 else 0.5

    with pytest.warns(UserWarning, match=r"scaled.scale") as said:
        step = compare(digest, change=change)
    assert len(said) == 1
    model = step.step.model
    for number, batch in enumerate(batches(4)):
        change(number, model)
        step(*batch)
        captured.append(step.captured)
    assert captured[0] is captured[2]
    assert captured[1] is captured[3]


def test_values_that_the_step_does_not_read_change_nothing(digest: Callable[[Any], str]) -> None:
    def change(number: int, model: Any) -> None:
        model.note = number
        random.random()

    step = compare(digest, change=change)
    assert step.step.python.state.holds()


def test_a_variable_of_an_outer_function_is_followed(digest: Callable[[Any], str]) -> None:
    def run(planned: bool) -> str:
        scale = 1.0
        calls = 0

        def loss(model: nn.Module, rows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            nonlocal calls
            calls += 1
            return classify(model, rows, labels) * scale

        def change(number: int, _model: Any) -> None:
            nonlocal scale
            scale = 1.0 if number < 10 else 0.5

        found, _ = train(planned, loss=loss, change=change)
        return digest([found, calls])

    expected = run(False)
    with pytest.warns(UserWarning, match=r"scale in loss \(1.0 -> 0.5\)"):
        assert run(True) == expected


class Counting(Net):
    """A network that counts its calls, and keeps values and tensors of them."""

    def __init__(self) -> None:
        super().__init__()
        self.n = 0
        self.seen: list[int] = []
        self.hidden: Any = None
        self.parts: dict[str, Any] = {}

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        self.n += 1
        COUNTS["calls"] += 1
        self.seen.append(self.n)
        hidden = self.first(rows)
        self.hidden = hidden.detach()
        self.parts = {"rows": rows, "pair": [hidden.sum().detach(), 3]}
        return self.last(self.body(hidden))


def test_effects_of_the_code_happen_once_in_each_step(digest: Callable[[Any], str]) -> None:
    def run(planned: bool) -> list[Any]:
        COUNTS["calls"] = 0
        found, step = train(planned, make=Counting)
        model: Any = step.step.model if planned else step.model
        return [digest([found, model.hidden, model.parts]), model.n, model.seen, COUNTS["calls"]]

    expected = run(False)
    assert expected[1:] == [N_STEPS, list(range(1, N_STEPS + 1)), N_STEPS]
    assert run(True) == expected


def test_making_and_measuring_a_step_changes_no_python_state() -> None:
    COUNTS["calls"] = 0
    random.seed(4)
    model = Counting()
    model.add_module("drop", LayerDrop())
    before = random.getstate()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = lt.training_step(model, classify, optimizer, batches(1)[0], before_update=lambda _: random.random())
    step.measure()
    assert (model.n, model.seen, model.hidden, COUNTS["calls"]) == (0, [], None, 0)
    assert random.getstate() == before


class LayerDrop(nn.Module):
    """Layers that are skipped by chance."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(2))
        self.last = nn.Linear(6, 3)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            if random.random() < 0.5:
                rows = torch.tanh(layer(rows))
        return self.last(rows)


class OtherDraws(LayerDrop):
    """Layers that are skipped by numbers of NumPy, and of a generator of its own."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            if np.random.rand() < 0.5 or RANDOM.choice([True, False]):
                rows = torch.tanh(layer(rows))
        return self.last(rows)


@pytest.mark.parametrize("make", [LayerDrop, OtherDraws])
def test_layers_are_dropped_by_the_same_random_numbers(make: Any, digest: Callable[[Any], str]) -> None:
    RANDOM.seed(3)
    expected, _ = train(False, make=make)
    RANDOM.seed(3)
    with pytest.warns(UserWarning, match="drawn by random|RANDOM") as said:
        found, step = train(True, make=make)
    assert len(said) == 1
    assert digest(found) == digest(expected)
    assert len(step._programs) == 4


class Average:
    """An averaged model whose decay depends on a counter."""

    def __init__(self, model: nn.Module) -> None:
        self.model = copy.deepcopy(model)
        self.n = 0

    def update(self, model: nn.Module) -> None:
        self.n += 1
        decay = min(0.9, (1 + self.n) / (10 + self.n))
        for mean, value in zip(self.model.parameters(), model.parameters(), strict=True):
            mean.mul_(decay).add_(value, alpha=1 - decay)


def test_an_average_with_a_counter_is_updated_in_each_step(digest: Callable[[Any], str]) -> None:
    def run(planned: bool) -> tuple[str, int]:
        torch.manual_seed(1)
        model = Net()
        average = Average(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
        step: Any = lt.TrainingStep(model, classify, optimizer, after_update=average.update)
        if planned:
            step = lt.training_step(model, classify, optimizer, batches(1)[0], after_update=average.update)
            assert average.n == 0
        for batch in batches():
            step(*batch)
        return digest([list(model.parameters()), list(average.model.parameters())]), average.n

    assert run(True) == run(False)


class Running(Net):
    """A network that assigns a new tensor to its buffer in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        self.mean = 0.9 * self.mean + 0.1 * rows.mean(0)
        return super().forward(rows - self.mean)


def test_a_buffer_may_be_assigned_in_each_call(digest: Callable[[Any], str]) -> None:
    def run(planned: bool) -> str:
        found, step = train(planned, make=Running)
        return digest([found, (step.step if planned else step).model.state_dict()])

    assert run(True) == run(False)


class Reading(Net):
    """A network that counts if a tensor has a value."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.n = 0

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if self.calls.item() > 3:
            self.n += 1
            rows = 2 * rows
        return super().forward(rows)


def test_effects_may_depend_on_the_number_in_a_buffer(digest: Callable[[Any], str]) -> None:
    def run(planned: bool) -> tuple[str, int]:
        found, step = train(planned, make=Reading)
        return digest(found), (step.step if planned else step).model.n

    expected = run(False)
    assert expected[1] == N_STEPS - 3
    assert run(True) == expected


def test_calls_of_several_forms_share_the_state(digest: Callable[[Any], str]) -> None:
    def run(planned: bool) -> str:
        torch.manual_seed(1)
        model = Counting()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step: Any = lt.TrainingStep(model, classify, optimizer, accumulate=2)
        if planned:
            step = lt.training_step(model, classify, optimizer, batches(1)[0], accumulate=2)
        for number, (rows, labels) in enumerate(batches(8)):
            step(rows[: 5 - number // 2 % 2], labels[: 5 - number // 2 % 2])
        return digest([list(model.parameters()), model.n, model.seen])

    assert run(True) == run(False)


def test_lines_are_printed_in_each_step(capsys: pytest.CaptureFixture[str]) -> None:
    class Printing(Net):
        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            print("rows", len(rows))
            return super().forward(rows)

    train(True, make=Printing)
    assert capsys.readouterr().out == "rows 5\n" * N_STEPS


class Advancing(Net):
    """A network that advances an iterator."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = itertools.count()

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        next(self.numbers)
        return super().forward(rows)


class PrintingTensors(Net):
    """A network that prints a tensor."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        print(rows.sum())
        return super().forward(rows)


class Growing(Net):
    """A network that makes a layer when it is called."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        if not hasattr(self, "late"):
            self.late = nn.Linear(3, 3)
        return self.late(super().forward(rows))


class Writing(Net):
    """A network that writes into a tensor that is no buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = [torch.zeros(6)]

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        self.mean[0].mul_(0.9)
        return super().forward(rows)


@pytest.mark.parametrize("kind", [Advancing, PrintingTensors, Growing, Writing])
def test_an_effect_that_cannot_be_replayed_is_refused_with_its_line(kind: Any) -> None:
    model = kind()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(UnsupportedError, match=r"test_python_state.py:\d+\)") as said:
        lt.training_step(model, classify, optimizer, batches(1)[0])
    assert "\n" not in str(said.value)


def test_a_hook_on_a_parameter_that_comes_later_is_refused() -> None:
    model = Net()
    step = lt.training_step(model, classify, torch.optim.SGD(model.parameters(), lr=0.1), batches(1)[0])
    step(*batches(1)[0])
    model.last.weight.register_hook(lambda gradient: 2 * gradient)
    with pytest.raises(UnsupportedError, match="gradient hooks"):
        step(*batches(1)[0])


def test_an_applied_program_refuses_calls_after_a_change() -> None:
    model = Net()
    step = lt.TrainingStep(model, classify, torch.optim.SGD(model.parameters(), lr=0.1))
    captured = lt.capture((step, batches(1)[0]))
    applied = lt.apply(Plan.baseline(lt.read(captured)), captured)
    applied(*batches(1)[0])
    model.scaled.scale = 2.0
    with pytest.raises(UsageError, match=r"scaled.scale .* capture again"):
        applied(*batches(1)[0])
