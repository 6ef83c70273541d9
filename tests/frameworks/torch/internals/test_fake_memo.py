"""`FakeMemo` returns the same form, storage and mode as running an op on fake tensors."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.fx import Graph, Node

from lowtide.frameworks.torch.internals.fake_memo import FakeMemo
from lowtide.frameworks.torch.internals.fake_tensors import faked, new_fake_mode
from lowtide.frameworks.torch.internals.nodes import compute_fake, value_of
from lowtide.frameworks.torch.internals.tensors import storage_key

ATEN = torch.ops.aten
bounds = st.one_of(st.none(), st.integers(-12, 12))


def _node(target: Any, *values: Any, **settings: Any) -> Node:
    """Return a call with one input per tensor, all fake in one mode."""
    graph, mode = Graph(), new_fake_mode()

    def argument(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        node = graph.placeholder("input")
        node.meta["val"] = faked(mode, value)
        return node

    args = tuple(map(argument, values))
    kwargs = {name: argument(value) for name, value in settings.items()}
    return graph.call_function(target, args, kwargs)


def _is_like(node: Node, found: Any, wanted: Any) -> bool:
    """Return whether two values have the same form and share storage with the same inputs."""

    def face(value: torch.Tensor) -> tuple[Any, ...]:
        shares = [storage_key(value_of(given)) == storage_key(value) for given in node.all_input_nodes]
        form = tuple(value.shape), value.stride(), value.dtype, value.device, value.storage_offset()
        return *form, shares, value.requires_grad, value.untyped_storage().nbytes(), type(value)

    return face(found) == face(wanted)


@given(size=st.integers(0, 9), start=bounds, end=bounds, step=st.integers(1, 4), offset=st.integers(0, 2))
def test_slices_have_the_same_form_and_offset_as_in_pytorch(
    size: int, start: int | None, end: int | None, step: int, offset: int
) -> None:
    base = torch.empty(3, size + offset, 2)[:, offset:]
    node = _node(ATEN.slice.Tensor, base, 1, start, end, step)
    assert _is_like(node, FakeMemo().value(node), compute_fake(node))


SQUARE = torch.empty(4, 4)
CALLS: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
    (ATEN.add.Tensor, (SQUARE, SQUARE), {}),
    (ATEN.mm.default, (torch.empty(3, 5), torch.empty(5, 2)), {}),
    (ATEN.t.default, (torch.empty(3, 8)[:, 2:],), {}),
    (ATEN.select.int, (torch.empty(3, 8), 1, 4), {}),
    (ATEN.expand.default, (torch.empty(3, 1), [3, 6]), {}),
    (ATEN.view.default, (torch.empty(3, 8)[1:], [4, 4]), {}),
    (ATEN.reshape.default, (torch.empty(3, 8).t(), [24]), {}),
    (ATEN._to_copy.default, (SQUARE,), {"dtype": torch.bfloat16}),
    (ATEN.add_.Tensor, (SQUARE, 1), {}),
    (ATEN.t_.default, (torch.empty(3, 8),), {}),
    (ATEN.mm.out, (SQUARE, SQUARE), {"out": torch.empty(4, 4)}),
    (ATEN.topk.default, (SQUARE, 2), {}),
    (ATEN.sum.dim_IntList, (SQUARE, [0], True), {}),
    (ATEN.full_like.default, (SQUARE, 1.5), {}),
]


@pytest.mark.parametrize(("target", "values", "settings"), CALLS, ids=[str(target) for target, *_ in CALLS])
def test_a_second_call_of_a_form_returns_the_same_result(
    target: Any, values: tuple[Any, ...], settings: dict[str, Any]
) -> None:
    """The first argument has another offset in another storage."""
    memo = FakeMemo()
    memo.value(_node(target, *values, **settings))
    moved = [_moved(value) if isinstance(value, torch.Tensor) else value for value in values]
    node = _node(target, *moved, **settings)
    found, wanted = memo.value(node), compute_fake(node)
    if isinstance(wanted, torch.Tensor):
        assert _is_like(node, found, wanted)
    else:
        assert all(_is_like(node, *pair) for pair in zip(found, wanted, strict=True))


def test_equal_numbers_of_different_types_have_different_keys() -> None:
    memo = FakeMemo()
    integers = torch.empty(4, dtype=torch.int64)
    assert memo.value(_node(ATEN.mul.Tensor, integers, 1)).dtype == torch.int64
    assert memo.value(_node(ATEN.mul.Tensor, integers, 1.0)).dtype == torch.float32


def _moved(value: torch.Tensor) -> torch.Tensor:
    """Return a tensor of the same strides at offset 7 of a new storage."""
    return torch.empty(1000, dtype=value.dtype).as_strided(value.shape, value.stride(), 7)
