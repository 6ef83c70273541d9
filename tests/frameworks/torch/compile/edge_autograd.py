"""Small programs at the edges of what autograd is asked for; each gives back the values it computes."""

from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.frameworks.torch.compile.edge_programs import WIDTH, Compile, Layers, Program, noise, parameter, two_steps


def _gradients(model: nn.Module) -> list[torch.Tensor | None]:
    return [weight.grad for weight in model.parameters()]


def no_grad_island(compile_it: Compile) -> Any:
    class Island(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.teacher, self.second = Layers(2), Layers(2, rate=0.2), Layers(2)

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            value = self.first(value)
            with torch.no_grad():
                target = self.teacher(value)
                target /= target.norm(dim=1, keepdim=True)
            return self.second(value) * target

    return two_steps(Island(), compile_it)


def nested_checkpoints(compile_it: Compile) -> Any:
    class Nested(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.inner, self.last = Layers(2, 0.2), Layers(2, 0.2), Layers(2)

        def outer(self, value: torch.Tensor) -> torch.Tensor:
            value = self.first(value)
            value = checkpoint(self.inner, value, use_reentrant=False)
            return torch.sin(value) * value

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            return self.last(checkpoint(self.outer, value, use_reentrant=False))

    return two_steps(Nested(), compile_it)


def reentrant_checkpoint(compile_it: Compile) -> Any:
    class Reentrant(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Layers(2), Layers(3, 0.2)

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            return checkpoint(self.second, self.first(value), use_reentrant=True)

    return two_steps(Reentrant(), compile_it)


def two_calls_before_one_backward(compile_it: Compile) -> Any:
    model = Layers(rate=0.1)
    run = compile_it(model)
    first, second = run(noise(64, WIDTH)), run(noise(64, WIDTH, seed=1))
    (first * second).sum().backward()
    return first.detach(), second.detach(), _gradients(model)


def backward_in_the_order_of_calls(compile_it: Compile) -> Any:
    model = Layers()
    run = compile_it(model)
    losses = [run(noise(64, WIDTH, seed=seed)).pow(2).sum() for seed in range(3)]
    for loss in losses:
        loss.backward()
    return _gradients(model)


def graph_breaks_within_training(compile_it: Compile) -> Any:
    model, seen = Layers(rate=0.1), list[float]()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(batch: torch.Tensor) -> torch.Tensor:
        value = model(batch)
        seen.append(value.detach().sum().item())
        loss = (value * value).sum()
        torch._dynamo.graph_break()
        return loss + value.mean()

    run = compile_it(step)
    for seed in range(3):
        optimizer.zero_grad()
        run(noise(32, WIDTH, seed=seed)).backward()
        optimizer.step()
    return seen, list(model.parameters())


def some_gradients_only(compile_it: Compile) -> Any:
    a, b, c = (parameter(WIDTH, WIDTH, seed=seed) for seed in range(3))
    run = compile_it(lambda a, b, c: (torch.tanh(a @ b), torch.sin(b) * 2, c.detach() * a))
    results = run(a, b, c)
    first = torch.autograd.grad(results[0].sum(), (a, b), retain_graph=True)
    second = torch.autograd.grad(results[1].sum(), (a, b, c), allow_unused=True)
    return first, second[1], [each is None or bool((each == 0).all()) for each in (second[0], second[2])]


def strided_gradients(compile_it: Compile) -> Any:
    weight = parameter(WIDTH, WIDTH)
    run = compile_it(lambda given: torch.tanh(torch.sin(given @ weight) @ weight))
    seen: list[torch.Tensor] = []
    for gradient in (
        noise(WIDTH, 64).t(),
        noise(1, WIDTH).expand(64, WIDTH),
        noise(64, 2 * WIDTH)[:, ::2],
        noise(64, WIDTH),
    ):
        (found,) = torch.autograd.grad(run(noise(64, WIDTH, seed=1)), weight, gradient)
        seen.append(found)
    return seen


def gradients_that_others_hold(compile_it: Compile) -> Any:
    """What a backward pass starts from belongs to the caller, to hooks and to other branches."""
    weight, given, other = parameter(WIDTH, WIDTH), noise(64, WIDTH, seed=3), parameter(64, WIDTH, seed=4)
    run = compile_it(lambda value: torch.tanh(value @ weight))
    run(noise(64, WIDTH)).backward(given)
    result = run(noise(64, WIDTH, seed=1))
    result.retain_grad()
    ((result + other) * noise(64, WIDTH, seed=5)).sum().backward()
    return given, result.grad, other.grad, weight.grad


def a_gradient_that_is_not_used(compile_it: Compile) -> Any:
    """The sign of a determinant is constant: its gradient, the first that the backward pass is given, is ignored."""
    weight = parameter(WIDTH, WIDTH)
    sign, logarithm = compile_it(lambda value: torch.linalg.slogdet(value @ value - 3.0))(weight)
    (torch.sin(sign * 3) * 5 + logarithm * 2).backward()
    return sign.detach(), logarithm.detach(), weight.grad


def backward_three_times(compile_it: Compile) -> Any:
    """What is saved is whole for the next backward pass, although the last one may overwrite it."""
    weight, seen = parameter(WIDTH, WIDTH), list[torch.Tensor]()

    def function(value: torch.Tensor) -> torch.Tensor:
        value = value @ weight
        return (value * value.exp()).sum(1)

    loss = compile_it(function)(noise(64, WIDTH)).pow(2).sum()
    for last in (False, False, True):
        loss.backward(retain_graph=not last)
        seen.append(weight.grad.clone())
    return seen


def retained_after_a_plain_step(compile_it: Compile) -> Any:
    """Whether a graph is retained may change from call to call, also at sizes compiled ahead of the backward pass."""
    weight, seen = parameter(WIDTH, WIDTH), list[torch.Tensor]()
    for dynamic in (False, True):
        run = compile_it(lambda value: torch.tanh((value @ weight).sin() @ weight).sum(1), dynamic=dynamic)
        for retain in (False, True, False):
            loss = run(noise(64, WIDTH)).pow(2).sum()
            if retain:
                loss.backward(retain_graph=True)
            loss.backward()
            seen.append(weight.grad.clone())
    return seen


def saved_tensor_hooks(compile_it: Compile) -> Any:
    model = Layers()
    run = compile_it(model)
    with torch.autograd.graph.saved_tensors_hooks(lambda value: value.clone(), lambda value: value):
        loss = run(noise(64, WIDTH)).pow(2).sum()
    loss.backward()
    with torch.autograd.graph.save_on_cpu():
        run(noise(64, WIDTH)).sum().backward()
    return loss.detach(), _gradients(model)


def hooks_on_results(compile_it: Compile) -> Any:
    model, seen = Layers(), list[torch.Tensor]()
    hidden = compile_it(model)(noise(64, WIDTH))
    hidden.register_hook(lambda gradient: seen.append(gradient.clone()) or gradient * 2)
    hidden.retain_grad()
    hidden.pow(2).sum().backward()
    return seen, hidden.grad, _gradients(model)


def full_backward_hooks(compile_it: Compile) -> Any:
    model, seen = nn.Sequential(Layers(2), Layers(2)), list[torch.Tensor]()
    model[1].register_full_backward_hook(lambda _module, _inputs, outputs: seen.append(outputs[0].clone()))
    return two_steps(model, compile_it), seen


def compiled_autograd(compile_it: Compile) -> Any:
    """Compiled autograd captures the backward passes of what runs within: through a graph break, too."""
    model = Layers()

    def function(value: torch.Tensor) -> torch.Tensor:
        value = torch.sin(model(value))
        torch._dynamo.graph_break()
        return model(value).pow(2).sum()

    run = compile_it(function)
    with torch._dynamo.compiled_autograd._enable(compile_it):
        for seed in range(2):
            run(noise(64, WIDTH, seed=seed)).backward()
    return _gradients(model)


def gradients_within_the_program(compile_it: Compile) -> Any:
    weight = parameter(WIDTH, WIDTH)

    def function(value: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        inner = torch.func.grad(lambda v: (torch.tanh(v @ weight).sin() * v).sum())(value)
        return inner.pow(2).sum() + torch.func.vmap(lambda row: (row * row.sum()).tanh())(value @ weight).sum()

    loss = compile_it(function)(noise(64, WIDTH), weight)
    loss.backward()
    return loss.detach(), weight.grad


def spectral_norm(compile_it: Compile) -> Any:
    """Each call improves two buffers in place, without gradients, and then uses them with gradients."""
    model = nn.Sequential(Layers(2), nn.utils.parametrizations.spectral_norm(nn.Linear(WIDTH, WIDTH)), Layers(2))
    return two_steps(model, compile_it)


AUTOGRAD: dict[str, Program] = {
    program.__name__: program
    for program in (
        no_grad_island,
        nested_checkpoints,
        reentrant_checkpoint,
        two_calls_before_one_backward,
        backward_in_the_order_of_calls,
        some_gradients_only,
        strided_gradients,
        gradients_that_others_hold,
        a_gradient_that_is_not_used,
        backward_three_times,
        retained_after_a_plain_step,
        saved_tensor_hooks,
        hooks_on_results,
        full_backward_hooks,
        compiled_autograd,
        gradients_within_the_program,
        spectral_norm,
    )
}
