"""Estimated run times of ops, from arithmetic and memory traffic."""

from functools import cache
from typing import Any

import torch
from torch.fx import Node
from torch.utils.flop_counter import flop_registry

from lowtide.engine.costs import PLAIN_MACHINE, Device, devices, sent_bytes
from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.hints import hinted_value_of
from lowtide.frameworks.torch.internals.nodes import map_arguments
from lowtide.frameworks.torch.internals.operators import op_name, overload_of
from lowtide.frameworks.torch.internals.runtime import gpu_kind
from lowtide.frameworks.torch.internals.tensors import bytes_of
from lowtide.frameworks.torch.reading.effects import is_random
from lowtide.frameworks.torch.reading.outlined import Work, outlined_by
from lowtide.frameworks.torch.reading.repeatable_draws import draws_as

aten = torch.ops.aten
_SECONDS_PER_DRAW = 4e-9
"""A CPU draws one random number after the other."""
_COUNTED_AS = {
    aten._scaled_dot_product_flash_attention_for_cpu: aten._scaled_dot_product_flash_attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: aten._scaled_dot_product_flash_attention_backward,
    aten._int_mm: aten.mm,
    aten._addmm_activation: aten.addmm,
    aten._scaled_grouped_mm: aten._grouped_mm,
    aten._scaled_grouped_mm_v2: aten._grouped_mm,
}


def _grouped_product_flops(left: torch.Tensor, right: torch.Tensor, *_: Any, **__: Any) -> int:
    """Groups partition the rows, columns or slabs of one product."""
    slabs = left.shape[0] if left.dim() == right.dim() == 3 else 1
    return 2 * int(slabs) * int(left.shape[-2]) * int(left.shape[-1]) * int(right.shape[-1])


_FORMULAS: dict[Any, Any] = {**flop_registry, aten._grouped_mm: _grouped_product_flops}


@cache
def present_device(name: str) -> Device | None:
    """Return the published figures of this GPU, or of the most similar known one; None for other devices.

    `name` is PyTorch's name, such as "cuda:0".
    """
    if not name.startswith("cuda") or not torch.cuda.is_available():
        return None
    title, capability, memory_bytes = gpu_kind(name)

    def difference(device: Device) -> tuple[bool, int, int]:
        major, minor = device.compute_capability
        return device.name != title, abs(10 * major + minor - capability), abs(device.memory_bytes - memory_bytes)

    return min(devices().values(), key=difference)


def price_of(work: Work, device_name: str) -> float:
    """Return the estimated seconds of a kernel on a plain machine.

    Times on a GPU are scaled by the ratio of memory speeds. So prices of its kernels and of copies to the host keep the
    ratios of their run times.
    """
    device = present_device(device_name)
    if device is None:
        return PLAIN_MACHINE.seconds(work.traffic_bytes, work.flops)
    return device.memory_bytes_per_second / PLAIN_MACHINE.bytes_per_second * device.seconds(*work)


def seconds_of(node: Node, ranks: int = 1, rank_span: int = 1) -> float:
    """Return the "eager" price of an op, see `price_of`."""
    if ranks > 1:
        return PLAIN_MACHINE.collective_seconds(sent_bytes(op_name(node.target), traffic_of(node), ranks), rank_span)
    device = device_of(node)
    numbers = sum(leaf.numel() for leaf in pytree.tensors_in(hinted_value_of(node))) if is_random(node) else 0
    drawn = _SECONDS_PER_DRAW * numbers if device == "cpu" else 0.0
    return price_of(Work(traffic_of(node), flops_of(node), product_dtype_of(node)), device) + drawn


def device_of(node: Node) -> str:
    tensors = pytree.tensors_in([hinted_value_of(each) for each in (node, *node.all_input_nodes)])
    return str(tensors[0].device) if tensors else ""


def traffic_of(node: Node) -> int:
    outlined = outlined_by(node)
    if outlined is not None:
        return outlined.traffic_bytes
    values = [hinted_value_of(each) for each in (node, *node.all_input_nodes)]
    return sum(map(bytes_of, pytree.tensors_in(values)))


def product_dtype_of(node: Node) -> str:
    """Return the dtype of an op's first floating-point operand, "" if it has none.

    "tfloat32" is float32 with rounded operands, as in convolutions and, if allowed, in matrix products.
    """
    values = pytree.tensors_in([hinted_value_of(each) for each in node.all_input_nodes])
    dtype = next((each.dtype for each in values if each.dtype.is_floating_point), None)
    if dtype is None:
        return ""
    rounds = op_name(node.target).startswith("convolution") or torch.get_float32_matmul_precision() != "highest"
    name = str(dtype).removeprefix("torch.")
    return "tfloat32" if dtype == torch.float32 and rounds else name.partition("_")[0]


def work_of(node: Node) -> tuple[Work, ...]:
    outlined = outlined_by(node)
    if outlined is not None:
        return tuple(outlined.work)
    return (Work(traffic_of(node), flops_of(node), product_dtype_of(node)),)


def flops_of(node: Node) -> int:
    """Return an op's floating-point operations; one per result element for an unknown op."""
    outlined = outlined_by(node)
    if outlined is not None:
        return outlined.flops
    result = hinted_value_of(node)
    overload = overload_of(node.target)
    packet: Any = None if overload is None else draws_as(overload).overloadpacket
    count: Any = None if packet is None else _FORMULAS.get(_COUNTED_AS.get(packet, packet))
    if count is None:
        return sum(leaf.numel() for leaf in pytree.tensors_in(result))
    args, kwargs = map_arguments(node, hinted_value_of)
    return int(count(*args, **kwargs, out_val=result))
