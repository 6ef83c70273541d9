"""Small programs with unusual inputs: layouts, dtypes, nothing in them, overwritten; each gives its values back."""

from typing import Any

import torch
from torch import nn

from tests.frameworks.torch.compile.edge_programs import WIDTH, Compile, Layers, Program, noise, parameter, train


def old_contents_of_an_input(compile_it: Compile) -> Any:
    """What is computed from an input's old contents is cheap to compute again, but they are gone by then."""

    def function(given: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        made = (given * 2).cos()
        result = (made @ weight).tanh()
        given.add_(1)
        return (result * made).sum()

    weight, given = parameter(WIDTH, WIDTH), noise(64, WIDTH)
    loss = compile_it(function)(given, weight)
    loss.backward()
    return loss.detach(), given, weight.grad


def old_contents_of_an_input_with_gradient(compile_it: Compile) -> Any:
    def function(given: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        made = (given * 2).cos()
        result = (made @ weight).tanh()
        given.add_(1)
        return (result * made).sum()

    weight, base = parameter(WIDTH, WIDTH), parameter(64, WIDTH, seed=1)
    given = base * 1.0
    loss = compile_it(function)(given, weight)
    (loss + given.sum()).backward()
    return loss.detach(), given.detach(), weight.grad, base.grad


def old_contents_through_a_view(compile_it: Compile) -> Any:
    def function(given: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        made = given.t()[:32] * 2
        result = ((made.cos() @ weight).tanh() * made.sin()).sum()
        given.add_(1)
        return result

    weight, given = parameter(WIDTH, WIDTH), noise(WIDTH, 64)
    loss = compile_it(function)(given, weight)
    loss.backward()
    return loss.detach(), given, weight.grad


def counter_used_after_its_increment(compile_it: Compile) -> Any:
    """The backward pass needs the count of its own call, whatever calls came after."""

    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = Layers(2)
            self.register_buffer("calls", torch.ones(()))
            self.register_buffer("history", torch.zeros(3, WIDTH))

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            value = self.layers(value)
            self.calls += 1
            self.history[1:] = self.history[:-1].clone()
            self.history[0] = value.detach().mean(0)
            return value * self.calls.sqrt() * self.history.sum(0).cos()

    model = Counting()
    run = compile_it(model)
    losses = [run(noise(64, WIDTH, seed=seed)).pow(2).sum() for seed in range(3)]
    for loss in reversed(losses):
        loss.backward()
    return [loss.detach() for loss in losses], [w.grad for w in model.parameters()], list(model.buffers())


def rows_of_an_input_overwritten(compile_it: Compile) -> Any:
    def function(given: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        given[0] = given[1] * 2
        given.t()[3].zero_()
        given[:, 5:7] += 1
        return torch.tanh(given.clone() @ weight).sum()

    weight, given = parameter(WIDTH, WIDTH), noise(64, WIDTH)
    loss = compile_it(function)(given, weight)
    loss.backward()
    return loss.detach(), given, weight.grad


def an_input_twice(compile_it: Compile) -> Any:
    def function(a: torch.Tensor, b: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        result = torch.tanh(a @ weight) * b
        return result, result

    value, weight = parameter(64, WIDTH), parameter(WIDTH, WIDTH, seed=1)
    first, second = compile_it(function)(value, value, weight)
    (first.sum() + second.pow(2).sum()).backward()
    return first.detach(), value.grad, weight.grad


def strided_inputs(compile_it: Compile) -> Any:
    weight = parameter(WIDTH, WIDTH)
    run = compile_it(lambda given: torch.sin(torch.tanh(given @ weight).t() @ given))
    seen: list[torch.Tensor] = []
    for given in (noise(WIDTH, 64).t(), noise(64, 2 * WIDTH)[:, ::2], noise(1, WIDTH).expand(64, WIDTH)):
        result = run(given)
        seen += [result.detach(), *torch.autograd.grad(result.sum(), weight)]
    return seen


def channels_last(compile_it: Compile) -> Any:
    class Convolutions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(
                nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2),
                nn.Conv2d(8, 8, 3, padding=1, groups=2), nn.GroupNorm(2, 8), nn.SiLU(),
            )  # fmt: skip

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            return self.layers(value) * 2

    model = Convolutions().to(memory_format=torch.channels_last)
    batch = noise(4, 3, 8, 8).to(memory_format=torch.channels_last)
    run = compile_it(model)
    strides = run(batch).stride()
    return train(model, run, batch, noise(4, 3, 8, 8, seed=1).to(memory_format=torch.channels_last)), strides


def complex_numbers(compile_it: Compile) -> Any:
    def function(given: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        mixed = torch.fft.rfft(given) @ weight
        squares = torch.view_as_real(mixed * mixed.conj()).sum()
        return squares + torch.fft.irfft(mixed).tanh().sum() + mixed.abs().sum()

    weight = torch.complex(noise(9, 9), noise(9, 9, seed=1)).requires_grad_()
    given = parameter(32, WIDTH)
    loss = compile_it(function)(given, weight)
    loss.backward()
    return loss.detach(), torch.view_as_real(weight.grad), given.grad


def nothing_in_the_batch(compile_it: Compile) -> Any:
    model = Layers(rate=0.1)
    run = compile_it(model)
    return train(model, run, noise(0, WIDTH), noise(8, WIDTH), noise(0, WIDTH))


def empty_tensors(compile_it: Compile) -> Any:
    def function(given: torch.Tensor, nothing: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
        joined = torch.cat([torch.tanh(given @ weight), nothing, given[:0]])
        return joined.sin() @ weight, nothing * 2, joined[3:3].sum(1)

    weight = parameter(WIDTH, WIDTH)
    result, *others = compile_it(function)(noise(64, WIDTH), noise(0, WIDTH), weight)
    result.sum().backward()
    return result.detach(), others, weight.grad


def whole_numbers(compile_it: Compile) -> Any:
    def function(index: torch.Tensor, mask: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows = weight[index] * torch.where(mask, 2.0, 0.5)[:, None]
        counts = torch.zeros(50, dtype=torch.int64).scatter_add_(0, index, torch.ones_like(index))
        summed = torch.zeros(8, WIDTH).index_add(0, index % 8, rows.tanh())
        return (summed.sin() * rows[:8].exp()).sum(), counts, index.cumsum(0), mask.logical_not(), rows.argmax(1)

    weight, index = parameter(50, WIDTH), torch.arange(64) * 7 % 50
    loss, *others = compile_it(function)(index, index % 3 == 0, weight)
    loss.backward()
    return loss.detach(), others, weight.grad


def mixed_dtypes(compile_it: Compile) -> Any:
    def function(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        product = (a.double() @ b).tanh()
        return (product.float() * c.bool()).to(torch.float64).sum() + product.to(torch.float16).float().sum() * 0

    a, b = parameter(64, WIDTH), noise(WIDTH, WIDTH).double().requires_grad_()
    loss = compile_it(function)(a, b, (noise(64, WIDTH, seed=2) > 0).to(torch.uint8))
    loss.backward()
    return loss.detach(), a.grad, b.grad


def bags_of_embeddings(compile_it: Compile) -> Any:
    class Bags(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bag, self.layers = nn.EmbeddingBag(50, WIDTH, mode="mean"), Layers(2)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.layers(self.bag(tokens))

    model = Bags()
    return train(model, compile_it(model), torch.arange(40).reshape(8, 5), torch.arange(5, 45).reshape(8, 5))


def python_numbers(compile_it: Compile) -> Any:
    weight = parameter(WIDTH, WIDTH)
    run = compile_it(lambda given, factor, times: torch.tanh(given @ weight * factor).sum() * times)
    seen: list[torch.Tensor] = []
    for factor, times in ((0.5, 2), (0.25, 3), (0.125, 3)):
        loss = run(noise(64, WIDTH), factor, times)
        seen += [loss.detach(), *torch.autograd.grad(loss, weight)]
    return seen


INPUTS: dict[str, Program] = {
    program.__name__: program
    for program in (
        old_contents_of_an_input,
        old_contents_of_an_input_with_gradient,
        old_contents_through_a_view,
        counter_used_after_its_increment,
        rows_of_an_input_overwritten,
        an_input_twice,
        strided_inputs,
        channels_last,
        complex_numbers,
        nothing_in_the_batch,
        empty_tensors,
        whole_numbers,
        mixed_dtypes,
        bags_of_embeddings,
        python_numbers,
    )
}
