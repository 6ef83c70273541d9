"""What operators are and say of themselves: overloads, schemas, tags, and operators of lowtide's own."""
# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportAttributeAccessIssue=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportPrivateImportUsage=false
# pyright: reportUnknownLambdaType=false

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._ops import HigherOrderOperator, OpOverload

from lowtide.frameworks.torch.internals import pytree


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


def overload_name(overload: Any) -> str:
    """Return what tells an operator's overload from the others of its name."""
    return overload._overloadname


def schema_arguments(overload: Any) -> list[Any]:
    """Return the arguments in an operator's schema."""
    return list(overload._schema.arguments)


def argument_types(overload: Any) -> list[tuple[str, str, bool]]:
    """Return name, type, and whether it goes by keyword only, of every argument in an operator's schema.

    Whether an argument is written to is left out, so that an in-place operator has the types of its plain form.
    """
    return [(a.name, str(a.type), a.kwarg_only) for a in overload._schema.arguments]


def is_view(target: Any) -> bool:
    """Tell whether an operator's results look at the storage of what it is given, as its schema says."""
    return isinstance(target, OpOverload) and target.is_view


def is_element_wise(target: Any) -> bool:
    """Tell whether an operator is one that Inductor computes within the kernels that use its results."""
    return isinstance(target, OpOverload) and (torch.Tag.pointwise in target.tags or target.namespace == "prims")


def is_random_op(overload: Any) -> bool:
    """Tell whether an operator draws from a random stream."""
    return torch.Tag.nondeterministic_seeded in overload.tags


def returns_anything(overload: Any) -> bool:
    """Tell whether an operator's schema has a result."""
    return n_results(overload) > 0


def n_results(overload: Any) -> int:
    """Return how many results an operator's schema has."""
    return len(overload._schema.returns)


def written_arguments(overload: Any, args: Any, kwargs: Any) -> list[Any]:
    """Return the given arguments, tensors or lists of tensors flattened, that an operator writes into."""
    given = dict(zip((a.name for a in overload._schema.arguments), args, strict=False)) | dict(kwargs)
    written = [a.name for a in overload._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    return [leaf for name in written for leaf in pytree.tree_leaves(given.get(name))]


def define_operator(
    schema: str,
    function: Callable[..., Any] | None = None,
    fake: Callable[..., Any] | None = None,
    *,
    tags: Sequence[torch.Tag] = (),
) -> Any:
    """Define an operator of the namespace `lowtide` and return its overload.

    It does what a function does, to fake tensors what `fake` does, or the same; without a function it cannot run.
    """
    library = torch.library.Library("lowtide", "FRAGMENT")
    _libraries.append(library)
    library.define(schema, tags=tuple(tags))
    name = schema.partition("(")[0]
    if function is not None:
        library.impl(name, function, "CompositeExplicitAutograd")
        torch.library.register_fake(f"lowtide::{name}", fake or function, lib=library)
    return getattr(torch.ops.lowtide, name).default


def register_fake(operator: Any, fake: Callable[..., Any]) -> None:
    """Say what a custom operator does to fake tensors."""
    operator.register_fake(fake)


_libraries: list[Any] = []  # an operator lives as long as the library that defined it
