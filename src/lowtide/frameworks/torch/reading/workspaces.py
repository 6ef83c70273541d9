"""Memory of library kernels, measured by running each once in its real shapes on made-up numbers."""

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from lowtide.core.collection import without_collection
from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.allocators import cpu_peak_of, cuda_peak_of
from lowtide.frameworks.torch.internals.compiling import TRACING
from lowtide.frameworks.torch.internals.hints import hinted_value_of
from lowtide.frameworks.torch.internals.nodes import map_arguments
from lowtide.frameworks.torch.internals.operators import op_name
from lowtide.frameworks.torch.internals.runtime import kept_random_state, without_autocast, without_modes
from lowtide.frameworks.torch.internals.tensors import plain_number, storage_bytes, storage_key
from lowtide.frameworks.torch.reading.captured import attribute
from lowtide.frameworks.torch.reading.effects import Arguments, arguments_by_name
from lowtide.frameworks.torch.reading.library_ops import KEEPS_STATE, STATE, is_library_op

_MOST_BYTES = 2**28
"""Most bytes allocated to measure a kernel."""
_MOST_MULTIPLICATIONS = 2**28
"""Of a kernel that is measured for its rule: milliseconds."""
_MOST_WORK = 2**30
"""Most elements times rows of a matrix to factorize: about a second."""
_CUDA_BLOCK = 512
_FACTORIZATIONS = ("linalg_", "_linalg_")
_FAILURES = (RuntimeError, ValueError, TypeError, ArithmeticError, LookupError, NotImplementedError, AssertionError)


@dataclass(frozen=True, slots=True)
class KernelMemory:
    """Memory of a kernel."""

    scratch_bytes: int
    result_bytes: tuple[int, ...]
    """Storage of each result, which fake tensors may not know."""


_known: dict[tuple[str, str, bool, int], KernelMemory | None] = {}


def workspace_of(node: Node) -> KernelMemory | None:
    """Return the memory of a library's kernel, measured once per operator and form of operands in this process.

    Return None for other nodes, and for kernels that cannot run here: without the device, on more than 256 MiB, or on
    made-up numbers.
    """
    device = _device_of(node)
    if device is None:
        return None
    args, kwargs = map_arguments(node, _value_of)
    key = str(node.target), form_of((args, kwargs)), _keeps_state(node), torch.get_num_threads()
    if key not in _known:
        may_run = _may_run(node, device, (args, kwargs))
        _known[key] = _measured(lambda: _memory_of_node(node, device), device) if may_run else None
    return _known[key]


def memory_of_call(operator: Any, given: Arguments, work: Any) -> KernelMemory | None:
    """Return the memory of a CPU kernel with `work` multiplications, measured once per form of operands.

    Return None if it takes more than milliseconds, or fails.
    """
    if int(plain_number(work)) > _MOST_MULTIPLICATIONS:
        return None
    key = str(operator), form_of(given), False, torch.get_num_threads()
    if key not in _known:
        cpu = torch.device("cpu")
        _known[key] = _measured(lambda: _memory_of(operator, (), stand_in(given), cpu), cpu)
    return _known[key]


def is_unmeasured(node: Node) -> bool:
    return _device_of(node) is not None and workspace_of(node) is None


def _device_of(node: Node) -> torch.device | None:
    if not is_library_op(node):
        return None
    values = (hinted_value_of(each) for each in (*node.all_input_nodes, node))
    device = next((tensor.device for tensor in pytree.tensors_in(list(values))), None)
    return device if device is not None and is_library_op(node, device.type) else None


def _value_of(node: Node) -> Any:
    value = hinted_value_of(node)
    if value is None and node.op == "get_attr" and node.graph.owning_module is not None:
        return attribute(node.graph.owning_module, str(node.target))
    return value


def _may_run(node: Node, device: torch.device, given: Any) -> bool:
    if device.type not in ("cpu", "cuda") or (device.type == "cuda" and not torch.cuda.is_available()):
        return False
    state = STATE.get(op_name(node.target))
    if state is not None and _source_of(arguments_by_name(node).get(state)) is None:
        return False  # without its state, the kernel would read memory that is not its own
    tensors = pytree.tensors_in([given, hinted_value_of(node)])
    if any(tensor.layout != torch.strided or tensor.device != device for tensor in tensors):
        return False
    if op_name(node.target).startswith(_FACTORIZATIONS):
        work = max((tensor.numel() * max(tensor.shape[-2:], default=1) for tensor in tensors), default=0)
        if work > _MOST_WORK:
            return False
    return sum(map(storage_bytes, tensors)) <= _MOST_BYTES


def _source_of(argument: Any) -> Node | None:
    source = argument.args[0] if isinstance(argument, Node) and argument.target is operator.getitem else None
    return source if isinstance(source, Node) and workspace_of(source) is not None else None


def _measured(run: Callable[[], KernelMemory], device: torch.device) -> KernelMemory | None:
    try:
        with (
            TRACING,
            without_modes(),
            without_autocast(),
            kept_random_state([device]),
            without_collection(),
        ):
            return run()
    except _FAILURES:
        return None


def _memory_of_node(node: Node, device: torch.device) -> KernelMemory:
    args, kwargs = _operands(node)
    return _memory_of(lambda *args, **kwargs: _run(node, args, kwargs), args, kwargs, device)


def _memory_of(
    kernel: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], device: torch.device
) -> KernelMemory:
    def call() -> Any:
        return kernel(*args, **kwargs)

    call()
    peak, result = cpu_peak_of(call) if device.type == "cpu" else cuda_peak_of(call, device)
    given = set(map(storage_key, pytree.tensors_in((args, kwargs))))
    results = pytree.tensors_in(result)
    sizes = {storage_key(tensor): storage_bytes(tensor) for tensor in results if storage_key(tensor) not in given}
    block = _CUDA_BLOCK if device.type == "cuda" else 1
    made = sum(-(-size // block) * block for size in sizes.values())
    return KernelMemory(max(0, peak - made), tuple(sizes.get(storage_key(tensor), 0) for tensor in results))


def _operands(node: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
    made: dict[Node, Any] = {}
    for argument in node.all_input_nodes:
        source = _source_of(argument)
        if source is None:
            made[argument] = stand_in(_value_of(argument))
        else:
            made[argument] = _run(source, *_operands(source))[argument.args[1]]
    bags = arguments_by_name(node).get("offsets")
    if isinstance(bags, Node):  # of embeddings; kernels allocate for those that are not empty
        made[bags] = torch.arange(len(made[bags]), dtype=made[bags].dtype, device=made[bags].device)
    args, kwargs = map_arguments(node, made.__getitem__)
    return _with_numbers(args), _with_numbers(kwargs)


def _run(node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    target: Any = node.target
    with torch.set_grad_enabled(_keeps_state(node)):  # else kernels make no state for the backward pass
        return target(*args, **kwargs)


def _keeps_state(node: Node) -> bool:
    place = KEEPS_STATE.get(op_name(node.target))
    return place is not None and any(user.users and user.args[1] == place for user in node.users)


def _with_numbers(values: Any) -> Any:
    return pytree.tree_map(_plain, values)


def _plain(leaf: Any) -> Any:
    return leaf if isinstance(leaf, torch.Tensor) else plain_number(leaf)


def stand_in(value: Any) -> Any:
    """Return nested values with real tensors of the same form, and plain numbers.

    Floats are random between 0 and 1, integers 0 (a valid index), and masks True.
    """
    return pytree.tree_map(_of_leaf, value)


def form_of(value: Any) -> str:
    """Return a key for arguments of equal cost."""
    return repr(pytree.tree_map(_form_of_leaf, value))


def _of_leaf(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        shape, strides = _numbers(leaf.shape), _numbers(leaf.stride())
        reach = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
        flat = _numbers_of(leaf.dtype, leaf.device, 1 + sum(reach) if math.prod(shape) else 0)
        return flat.as_strided(shape, strides)
    return plain_number(leaf)


def _numbers_of(dtype: torch.dtype, device: torch.device, count: int) -> torch.Tensor:
    if dtype is torch.bool:
        return torch.ones(count, dtype=dtype, device=device)
    if dtype.is_floating_point or dtype.is_complex:
        return torch.rand(count, device=device).to(dtype)
    return torch.zeros(count, dtype=dtype, device=device)


def _form_of_leaf(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return _numbers(leaf.shape), _numbers(leaf.stride()), leaf.dtype, leaf.device
    return plain_number(leaf)


def _numbers(sizes: Any) -> tuple[int, ...]:
    return tuple(int(plain_number(size)) for size in sizes)
