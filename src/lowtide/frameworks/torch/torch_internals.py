"""The private or untyped corners of PyTorch that lowtide stands on, in one place: a new PyTorch is ported here."""
# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportAttributeAccessIssue=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportPrivateImportUsage=false

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.fx.experimental.symbolic_shapes as symbolic_shapes
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses import fake_tensor
from torch.fx import Node
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

DEPENDS_ON_VALUES: tuple[type[Exception], ...] = (
    symbolic_shapes.GuardOnDataDependentSymNode,
    fake_tensor.DataDependentOutputException,
    fake_tensor.DynamicOutputShapeException,
)
"""What tracing raises where a program depends on the values of tensors."""


def overload_of(target: Any) -> Any:
    """Return a node's target where it is an operator with a schema, else None."""
    return target if isinstance(target, OpOverload) else None


def higher_order_of(target: Any) -> Any:
    """Return a node's target where it is a higher-order operator, else None."""
    return target if isinstance(target, HigherOrderOperator) else None


def op_name(target: Any) -> str:
    """Return an operator's name without namespace and overload; empty for what is no operator with a schema."""
    return target._opname if isinstance(target, OpOverload) else ""


def qualified_name(overload: Any) -> str:
    """Return an operator's name with its namespace, such as `aten::add`."""
    return overload._schema.name


def schema_arguments(overload: Any) -> list[Any]:
    """Return the arguments in an operator's schema."""
    return list(overload._schema.arguments)


def argument_types(overload: Any) -> list[tuple[str, str, bool]]:
    """Return name, type, and whether it goes by keyword only, of every argument in an operator's schema.

    Whether an argument is written to is left out, so that an in-place operator has the types of its plain form.
    """
    return [(a.name, str(a.type), a.kwarg_only) for a in overload._schema.arguments]


def overload_name(overload: Any) -> str:
    """Return what tells an operator's overload from the others of its name."""
    return overload._overloadname


def is_view(target: Any) -> bool:
    """Tell whether an operator's results look at the storage of what it is given, as its schema says."""
    return isinstance(target, OpOverload) and target.is_view


def another_like(tensor: torch.Tensor) -> torch.Tensor:
    """Return a new tensor of the same form; of a fake one another fake one."""
    return tensor.new_empty_strided(tensor.shape, tensor.stride())


def define_operator(
    schema: str, function: Callable[..., Any] | None = None, fake: Callable[..., Any] | None = None
) -> Any:
    """Define an operator of the namespace `lowtide` and return its overload.

    It does what a function does, to fake tensors what `fake` does, or the same; without a function it cannot run.
    """
    library = torch.library.Library("lowtide", "FRAGMENT")
    _libraries.append(library)
    library.define(schema)
    name = schema.partition("(")[0]
    if function is not None:
        library.impl(name, function, "CompositeExplicitAutograd")
        torch.library.register_fake(f"lowtide::{name}", fake or function, lib=library)
    return getattr(torch.ops.lowtide, name).default


_libraries: list[Any] = []  # an operator lives as long as the library that defined it


def returns_anything(overload: Any) -> bool:
    """Tell whether an operator's schema has a result."""
    return bool(overload._schema.returns)


def map_nodes(arguments: Any, function: Callable[[Node], Any]) -> Any:
    """Return nested arguments with every node replaced by what a function gives for it."""
    return torch.fx.node.map_arg(arguments, function)


def value_of(node: Node) -> Any:
    """Return the fake or real tensors a node stands for, None where it carries none."""
    return node.meta.get("val")


def storage_key(tensor: torch.Tensor) -> int:
    """Return what tells a tensor's storage from all others that are alive."""
    storage: Any = tensor.untyped_storage()
    return storage._cdata


def storages_of(*nodes: Node) -> set[int]:
    """Return the keys of the storages in which the strided tensors lie that nodes stand for."""
    leaves = pytree.tree_leaves([value_of(node) for node in nodes])
    return {storage_key(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided}


def storage_bytes(tensor: torch.Tensor) -> int:
    """Return the size of a tensor's storage; of a symbolic one the value it was traced with."""
    return symbolic_shapes.optimization_hint(tensor.untyped_storage().nbytes())


def random_state() -> torch.Tensor:
    """Return the state of the default CPU generator."""
    return torch.random.default_generator.get_state()


def set_random_state(state: torch.Tensor) -> None:
    """Set the state of the default CPU generator."""
    torch.random.default_generator.set_state(state)


def kept_random_state(devices: Iterable[torch.device] = ()) -> AbstractContextManager[None]:
    """Put the states of the default CPU generator and of those of CUDA devices back at the end."""
    return torch.random.fork_rng(devices=[device for device in devices if device.type == "cuda"])


def plain_number(value: Any) -> Any:
    """Return what a symbolic number was traced with, or where only running the program tells it, 1 or a half; anything
    else as it is."""
    if not isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return value
    if value.node.has_hint():
        return value.node.hint
    return 0.5 if isinstance(value, torch.SymFloat) else 1


def without_autocast() -> AbstractContextManager[None]:
    """Switch automatic casts off; a captured graph holds its casts as ops."""
    return torch._C._DisableAutocast()


def is_dense(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor's elements lie in memory without overlaps and gaps."""
    return bool(torch.ops.aten.is_non_overlapping_and_dense.default(tensor))


def differentiate(loss: torch.Tensor) -> None:
    """Run the backward pass."""
    loss.backward()


def memory_clock(device: str) -> tuple[int, int]:
    """Return the clock rate of a CUDA device's memory in kHz and the width of its bus in bits."""
    properties = torch.cuda.get_device_properties(device)
    return properties.memory_clock_rate, properties.memory_bus_width


def without_modes() -> AbstractContextManager[Any]:
    """Run as if nothing were being traced."""
    return _disable_current_modes()


def is_random_op(overload: Any) -> bool:
    """Tell whether an operator draws from a random stream."""
    return torch.Tag.nondeterministic_seeded in overload.tags


def written_arguments(overload: Any, args: Any, kwargs: Any) -> list[Any]:
    """Return the given arguments, tensors or lists of tensors flattened, that an operator writes into."""
    given = dict(zip((a.name for a in overload._schema.arguments), args, strict=False)) | dict(kwargs)
    written = [a.name for a in overload._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    return [leaf for name in written for leaf in pytree.tree_leaves(given.get(name))]
