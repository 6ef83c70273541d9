"""Small programs at the edges of what `torch.compile` takes; each gives back the values it computes."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

Compile = Callable[..., Callable[..., Any]]
"""Takes a function or module and the keywords of `torch.compile`."""
Program = Callable[[Compile], Any]

WIDTH = 16


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def parameter(*shape: int, seed: int = 0) -> torch.Tensor:
    return noise(*shape, seed=seed).requires_grad_()


class Layers(nn.Module):
    """Linear layers of one width, each with an activation and dropout."""

    def __init__(self, depth: int = 4, rate: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(depth))
        self.rate = rate

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            value = nn.functional.dropout(torch.tanh(layer(value)), self.rate, self.training)
        return value


def train(model: nn.Module, run: Callable[..., Any], *batches: Any) -> list[Any]:
    """Train one step per batch; returns losses, gradients and buffers of each."""
    seen: list[Any] = []
    for seed, batch in enumerate(batches):
        model.zero_grad()
        torch.manual_seed(seed)
        loss = run(batch).float().pow(2).sum()
        loss.backward()
        seen.append([loss.detach(), [p.grad for p in model.parameters()], [b.clone() for b in model.buffers()]])
    return seen


def two_steps(model: nn.Module, compile_it: Compile) -> list[Any]:
    return train(model, compile_it(model), noise(64, WIDTH), noise(64, WIDTH, seed=1))


def graph_break(compile_it: Compile) -> Any:
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Layers(2, rate=0.1), Layers(2, rate=0.1)

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            value = self.first(value)
            torch._dynamo.graph_break()
            return self.second(value)

    return two_steps(Broken(), compile_it)


def dropout(compile_it: Compile) -> Any:
    return two_steps(Layers(rate=0.3), compile_it)


def other_random_draws(compile_it: Compile) -> Any:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Layers(2), Layers(2)

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            value = self.first(value)
            value = (value + torch.rand_like(value) * value) * torch.bernoulli(torch.full_like(value, 0.5))
            value = self.second(value)
            return value + torch.randn(value.shape) * value + nn.functional.gumbel_softmax(value)

    return two_steps(Noisy(), compile_it)


def dynamic_sizes(compile_it: Compile) -> Any:
    model = Layers(rate=0.1)
    sizes = (64, 48, 7, 64, 1)
    return train(model, compile_it(model, dynamic=True), *(noise(size, WIDTH, seed=size) for size in sizes))


def marked_dynamic(compile_it: Compile) -> Any:
    model = Layers()
    batches = [noise(size, WIDTH, seed=size) for size in (64, 33, 7)]
    for batch in batches:
        torch._dynamo.mark_dynamic(batch, 0)
    return train(model, compile_it(model), *batches)


def dynamic_views(compile_it: Compile) -> Any:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.project, self.norm = nn.Linear(WIDTH, 3 * WIDTH), nn.LayerNorm(WIDTH)

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            batch, length, _ = value.shape
            query, key, content = self.project(self.norm(value)).view(batch, length, 3, 2, -1).permute(2, 0, 3, 1, 4)
            weights = (query @ key.transpose(-1, -2)).softmax(-1)
            return (weights @ content).transpose(1, 2).reshape(batch, length, WIDTH) * length

    model = Attention()
    batches = [noise(batch, length, WIDTH) for batch, length in ((4, 12), (2, 9))]
    return train(model, compile_it(model, dynamic=True), *batches)


def without_gradients(compile_it: Compile) -> Any:
    model = Layers()
    run = compile_it(model)
    with torch.no_grad():
        first = run(noise(64, WIDTH))
    with torch.inference_mode():
        second = run(noise(64, WIDTH)).clone()
    return first, second, train(model, run, noise(64, WIDTH))


def tied_weights(compile_it: Compile) -> Any:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.layers = nn.Embedding(50, WIDTH), Layers()
            self.head = nn.Linear(WIDTH, 50, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return nn.functional.cross_entropy(self.head(self.layers(self.embedding(tokens))).flatten(0, -2), tokens)

    model = Tied()
    return train(model, compile_it(model), torch.arange(40), torch.arange(40))


def subclass_inputs(compile_it: Compile) -> Any:
    weight, value = parameter(WIDTH, WIDTH), TwoTensor(noise(64, WIDTH), noise(64, WIDTH, seed=2)).requires_grad_()
    run = compile_it(lambda given: (torch.tanh(torch.tanh(given @ weight) @ weight).sin() @ weight).sum())
    run(value).backward()
    return weight.grad.a, weight.grad.b, value.grad.a, value.grad.b


def subclass_parameters(compile_it: Compile) -> Any:
    weight = nn.Parameter(TwoTensor(noise(WIDTH, WIDTH), noise(WIDTH, WIDTH, seed=3)))
    run = compile_it(lambda given: torch.tanh(torch.tanh(given @ weight) @ weight).sin() @ weight)
    loss = run(noise(64, WIDTH)).sum()
    loss.backward()
    return loss.a, loss.b, weight.grad.a, weight.grad.b


class Checkpointed(nn.Module):
    """Blocks of layers, each of them checkpointed."""

    def __init__(self, rate: float = 0.0, **keywords: Any) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Layers(3, rate) for _ in range(3))
        self.keywords = keywords

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            value = checkpoint(block, value, use_reentrant=False, **self.keywords)
        return value


def checkpointed(compile_it: Compile) -> Any:
    return two_steps(Checkpointed(), compile_it)


def checkpointed_dropout(compile_it: Compile) -> Any:
    return two_steps(Checkpointed(rate=0.3), compile_it)


def _save_products(_context: Any, op: Any, *_args: Any, **_kwargs: Any) -> CheckpointPolicy:
    product = op == torch.ops.aten.addmm.default
    return CheckpointPolicy.MUST_SAVE if product else CheckpointPolicy.PREFER_RECOMPUTE


def selectively_checkpointed(compile_it: Compile) -> Any:
    contexts = partial(create_selective_checkpoint_contexts, _save_products)
    return two_steps(Checkpointed(rate=0.3, context_fn=contexts), compile_it)


def views_of_inputs(compile_it: Compile) -> Any:
    base = parameter(64, WIDTH)
    inputs = base * 1.0
    loss, view = compile_it(lambda a, b: ((torch.tanh(a) * b).sum(), a.t()))(inputs[:32], inputs[32:])
    loss.backward()
    return loss.detach(), view.detach(), base.grad


def overlapping_inputs_one_overwritten(compile_it: Compile) -> Any:
    base = noise(64)
    result = compile_it(lambda a, b: (torch.sin(b) * a.mul_(2)).sum(0))(base[:40], base[20:60])
    return result, base


def outputs_that_alias(compile_it: Compile) -> Any:
    def function(given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = torch.tanh(given) * 2
        return made, made.view(-1), made[1:], given, given.view(-1)

    value = parameter(8, 8)
    outputs = compile_it(function)(value)
    torch.stack([output.sum() for output in outputs]).sum().backward()
    return [output.detach() for output in outputs], value.grad


def outputs_that_are_no_tensors(compile_it: Compile) -> Any:
    def function(a: torch.Tensor, b: torch.Tensor) -> tuple[Any, ...]:
        return a, b, (a * b).tanh(), 3, None, "text", a.shape[0]

    first, second = parameter(8, 8), noise(8, 8, seed=1)
    outputs = compile_it(function)(first, second)
    (outputs[0].sum() + outputs[2].pow(2).sum()).backward()
    return [*outputs[3:], outputs[0] is first, outputs[1] is second, outputs[2].detach(), first.grad]


def in_place_on_intermediates(compile_it: Compile) -> Any:
    def function(given: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        made = (given @ weight).add_(1.0).tanh_().clone()
        made[0] = 0
        other = made.sin().mul_(3)
        other[:, 1:3].copy_(made[:, 2:4])
        return other.exp().sum()

    weight = parameter(WIDTH, WIDTH)
    loss = compile_it(function)(noise(64, WIDTH), weight)
    loss.backward()
    return loss.detach(), weight.grad


def in_place_on_inputs(compile_it: Compile) -> Any:
    def function(given: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        given.mul_(2)
        made = torch.tanh(given.clone() @ weight)
        given.add_(made)
        return (torch.tanh(given.clone() @ weight) * made).sum()

    weight, base = parameter(WIDTH, WIDTH), parameter(64, WIDTH, seed=1)
    plain, tracked = noise(64, WIDTH, seed=2), base * 1.0
    run = compile_it(function)
    gradients = [torch.autograd.grad(run(plain, weight) + plain.sum(), weight)]
    gradients.append(torch.autograd.grad(run(tracked, weight) + tracked.sum(), (weight, base)))
    return plain.detach(), tracked.detach(), gradients


def hooks(compile_it: Compile) -> Any:
    class Hooked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Layers(2), Layers(2)

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            value = self.first(value)
            value.register_hook(lambda gradient: gradient * 0.5)
            return self.second(value)

    model, seen = Hooked(), dict[int, list[torch.Tensor]]()
    model.second.register_forward_hook(lambda _module, _given, result: result * 2)
    for index, weight in enumerate(model.parameters()):
        weight.register_hook(lambda gradient: gradient + 1)
        seen[index] = []
        weight.register_post_accumulate_grad_hook(lambda p, sums=seen[index]: sums.append(p.grad.sum()))
    return two_steps(model, compile_it), seen


def backward_twice(compile_it: Compile) -> Any:
    model = Layers()
    loss = compile_it(model)(noise(64, WIDTH)).pow(2).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    return [weight.grad for weight in model.parameters()]


def only_one_output_differentiated(compile_it: Compile) -> Any:
    weight = parameter(WIDTH, WIDTH)
    first, *others = compile_it(lambda w: (torch.tanh(w @ w), torch.sin(w @ w), w * 2))(weight)
    first.pow(2).sum().backward()
    return first.detach(), [other.detach() for other in others], weight.grad


def unused_parameters(compile_it: Compile) -> Any:
    class Partly(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused, self.frozen = Layers(), nn.Linear(3, 3), Layers().requires_grad_(False)
            self.detached = nn.Parameter(torch.ones(WIDTH))

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            return self.frozen(self.used(value)) + self.detached.detach()

    return two_steps(Partly(), compile_it)


class OwnSquare(torch.autograd.Function):
    """A square whose gradient is not the true one, so that it shows which was used."""

    @staticmethod
    def forward(context: Any, value: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(value)
        return value * value

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        (value,) = context.saved_tensors
        return 3 * value * gradient


def own_autograd_function(compile_it: Compile) -> Any:
    class Squared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Layers(2), Layers(2)

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            return self.second(OwnSquare.apply(self.first(value)))

    return two_steps(Squared(), compile_it)


def state_of_a_module(compile_it: Compile) -> Any:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = Layers()
            self.register_buffer("calls", torch.zeros(()))
            self.register_buffer("average", torch.zeros(WIDTH))

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            value = self.layers(value)
            self.calls += 1
            self.average.mul_(0.9).add_(value.detach().mean(0), alpha=0.1)
            return value * self.calls + self.average

    return two_steps(Counting(), compile_it)


def branches_on_tensors(compile_it: Compile) -> Any:
    def function(given: torch.Tensor) -> torch.Tensor:
        return torch.cond(given.sum() > 0, lambda v: torch.sin(v) * 2, torch.cos, (given,))

    value = parameter(8, 8)
    result = compile_it(function)(value)
    result.sum().backward()
    return result.detach(), value.grad


BIT_EQUAL: dict[str, Program] = {
    program.__name__: program
    for program in (
        graph_break,
        dropout,
        other_random_draws,
        dynamic_sizes,
        marked_dynamic,
        dynamic_views,
        without_gradients,
        tied_weights,
        subclass_inputs,
        subclass_parameters,
        checkpointed,
        checkpointed_dropout,
        selectively_checkpointed,
        views_of_inputs,
        overlapping_inputs_one_overwritten,
        outputs_that_alias,
        outputs_that_are_no_tensors,
        in_place_on_intermediates,
        in_place_on_inputs,
        hooks,
        backward_twice,
        only_one_output_differentiated,
        unused_parameters,
        own_autograd_function,
        state_of_a_module,
        branches_on_tensors,
    )
}

WITHOUT_BUDGET = (
    "checkpointed_dropout",
    "nested_checkpoints",
    "state_of_a_module",
    "in_place_on_inputs",
    "old_contents_of_an_input_with_gradient",
    "counter_used_after_its_increment",
    "branches_on_tensors",
)
"""Where PyTorch's choice of what to save stands, and needs our care."""
