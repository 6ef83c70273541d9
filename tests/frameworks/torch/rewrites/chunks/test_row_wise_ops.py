"""Row-wise ops give the same bits for some rows as for all."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from lowtide.frameworks.torch.rewrites.chunks import updates

N = 4096
Call = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def _compare(function: Any, x: torch.Tensor, y: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    return function(x, y)


Arithmetic: dict[str, Call] = {
    "add": lambda x, y, z: x.add(y, alpha=0.37),
    "sub": lambda x, y, z: x.sub(y, alpha=0.37),
    "rsub": lambda x, y, z: torch.rsub(x, y, alpha=0.37),
    "mul": lambda x, y, z: x * y * 0.999,
    "div": lambda x, y, z: x / z / 0.3,
    "sqrt": lambda x, y, z: z.sqrt(),
    "reciprocal": lambda x, y, z: z.reciprocal(),
    "addcmul": lambda x, y, z: x.addcmul(y, z, value=0.001),
    "addcdiv": lambda x, y, z: x.addcdiv(y, z, value=-0.001),
    "lerp": lambda x, y, z: x.lerp(y, 0.1) + x.lerp(y, 0.7) + x.lerp(y, z),
}
Exact: dict[str, Call] = {
    "abs": lambda x, y, z: x.abs(),
    "neg": lambda x, y, z: -x,
    "sign": lambda x, y, z: x.sign(),
    "maximum": lambda x, y, z: x.maximum(y),
    "minimum": lambda x, y, z: x.minimum(y),
    "clamp": lambda x, y, z: x.clamp(-0.5, 0.7),
    "where": lambda x, y, z: torch.where(x > 0, y, z),
    "copy": lambda x, y, z: torch.empty_like(x).copy_(y),
    "clone": lambda x, y, z: x.clone(),
    "_to_copy": lambda x, y, z: x.to(torch.float16).double() + x.to(torch.bfloat16).double() + x.float().double(),
    "fill": lambda x, y, z: x.clone().fill_(2),
    "zero": lambda x, y, z: x.clone().zero_(),
    **{name: partial(_compare, getattr(torch, name)) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "logical_not": lambda x, y, z: torch.logical_not(x > 0),
    "logical_and": lambda x, y, z: torch.logical_and(x > 0, y > 0),
    "logical_or": lambda x, y, z: torch.logical_or(x > 0, y > 0),
}
Steps: dict[str, Callable[..., Any]] = {
    "_fused_adam_": lambda p, g, m, v, w, steps: torch._fused_adam_([p], [g], [m], [v], [w], steps, **_adam()),
    "_fused_adamw_": lambda p, g, m, v, w, steps: torch._fused_adamw_([p], [g], [m], [v], [w], steps, **_adam()),
    "_fused_sgd_": lambda p, g, m, v, w, steps: torch._fused_sgd_([p], [g], [m], **_sgd()),
    "_fused_adagrad_": lambda p, g, m, v, w, steps: torch._fused_adagrad_([p], [g], [v], steps, **_adagrad()),
}


def _adam() -> dict[str, Any]:
    common = {"weight_decay": 0.1, "eps": 1e-8, "maximize": False}
    return {"lr": 0.01, "beta1": 0.9, "beta2": 0.999, "amsgrad": True, **common}


def _sgd() -> dict[str, Any]:
    more = {"dampening": 0.1, "nesterov": True, "maximize": False, "is_first_step": False}
    return {"weight_decay": 0.1, "momentum": 0.9, "lr": 0.01, **more}


def _adagrad() -> dict[str, Any]:
    return {"lr": 0.01, "lr_decay": 0.1, "weight_decay": 0.1, "eps": 1e-8, "maximize": False}


def operands(kind: torch.dtype) -> list[torch.Tensor]:
    """Return two normal tensors and one with positive numbers."""
    generator = torch.Generator().manual_seed(0)
    first, second, third = (torch.randn(N, generator=generator) for _ in range(3))
    return [first.to(kind), second.to(kind), (third.abs() + 1e-3).to(kind)]


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's bytes."""
    return tensor.contiguous().view(torch.uint8)


def test_every_row_wise_op_is_tested_here() -> None:
    assert Arithmetic.keys() | Steps.keys() == updates.ARITHMETIC
    assert Exact.keys() == updates.EXACT


@pytest.mark.share_of_cases
@pytest.mark.parametrize("rows", [1, 3, 7, 100])
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, kind) for name in Arithmetic for kind in (torch.float32, torch.float64)),
        *((name, kind) for name in Exact for kind in (torch.float32, torch.float64, torch.bfloat16, torch.float16)),
    ],
)
def test_chunks_of_an_element_wise_op_have_equal_bits(name: str, kind: torch.dtype, rows: int) -> None:
    compute = {**Arithmetic, **Exact}[name]
    given = operands(kind)
    parts = [compute(*(tensor[first : first + rows] for tensor in given)) for first in range(0, N, rows)]
    assert torch.equal(bits(torch.cat(parts)), bits(compute(*given)))


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", Steps)
def test_chunks_of_a_fused_update_have_equal_bits(name: str, kind: torch.dtype) -> None:
    """With two threads, and a length that neither they nor vectors divide."""

    def updated(first: int, last: int) -> list[torch.Tensor]:
        parameter, gradient, positive = (tensor[first:last].clone() for tensor in operands(kind))
        state = [parameter, gradient, gradient * 0.5, positive, positive * 1.1]
        Steps[name](*state, [torch.tensor(3.0)])
        return state

    torch.set_num_threads(2)
    last = N - 5
    parts = [updated(first, min(first + 64 * 9, last)) for first in range(0, last, 64 * 9)]
    for whole, *pieces in zip(updated(0, last), *parts, strict=True):
        assert torch.equal(bits(torch.cat(pieces)), bits(whole))


def test_sums_over_tokens_have_the_same_order_in_every_chunk() -> None:
    """The gradient of an embedding for some rows. Other tokens go to extra rows."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, 37, (4, 300), generator=generator)
    gradient = torch.randn(4, 300, 13, generator=generator)
    whole = torch.ops.aten.embedding_dense_backward(gradient, tokens, 37, 5, False)
    for first, last in ((0, 10), (10, 20), (20, 37)):
        moved = (tokens - (first - 1)).clamp(0, last - first + 1)
        ignored = 5 - first + 1 if first <= 5 < last else 0
        part = torch.ops.aten.embedding_dense_backward(gradient, moved, last - first + 2, ignored, False)
        assert torch.equal(bits(part[1:-1]), bits(whole[first:last]))
