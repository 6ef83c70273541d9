"""Operators: schemas, tags, lowtide's own operators, and their lowering in Inductor."""
# pyright: reportPrivateUsage=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from collections.abc import Callable, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import torch
from torch._ops import HigherOrderOperator, OpOverload

_libraries: list[Any] = []  # an operator lives as long as its library
_CHANNELS_LAST = [1, 3, 2, 0]
"""Dimensions, innermost first."""


def overload_of(target: Any) -> Any:
    return target if isinstance(target, OpOverload) else None


def higher_order_of(target: Any) -> Any:
    return target if isinstance(target, HigherOrderOperator) else None


def op_name(target: Any) -> str:
    """Return the name without namespace and overload, or ""."""
    return target._opname if isinstance(target, OpOverload) else ""


def qualified_name(overload: Any) -> str:
    """Return a name such as `aten::add`."""
    return overload._schema.name


def overload_name(overload: Any) -> str:
    return overload._overloadname


def schema_arguments(overload: Any) -> list[Any]:
    return list(overload._schema.arguments)


def schema_with(overload: Any, keyword: str) -> tuple[str, str]:
    """Return an operator's schema with one more keyword argument: its arguments, and its results."""
    text, _, results = str(overload._schema).partition(" -> ")
    arguments = text.partition("(")[2].removesuffix(")")
    by_keyword = keyword if "*," in arguments else f"*, {keyword}"
    return f"{arguments}, {by_keyword}", results.removeprefix("(").removesuffix(")")


def overloads_of(packet: Any) -> list[Any]:
    found = [overload_of(getattr(packet, name)) for name in packet.overloads()]
    return [each for each in found if each is not None and each._schema.arguments]


def argument_types(overload: Any) -> list[tuple[str, str, bool]]:
    """Return each argument's name, type without mutability, and keyword-only flag."""
    return [(a.name, str(a.type), a.kwarg_only) for a in overload._schema.arguments]


def is_view(target: Any) -> bool:
    return isinstance(target, OpOverload) and target.is_view


def is_element_wise(target: Any) -> bool:
    return isinstance(target, OpOverload) and (torch.Tag.pointwise in target.tags or target.namespace == "prims")


def returns_anything(overload: Any) -> bool:
    return n_results(overload) > 0


def n_results(overload: Any) -> int:
    return len(overload._schema.returns)


@cache
def is_mutable(overload: Any) -> bool:
    schema = getattr(overload, "_schema", None)
    return schema is not None and bool(schema.is_mutable)


def define_operator(
    schema: str,
    function: Callable[..., Any] | None = None,
    fake: Callable[..., Any] | None = None,
    *,
    tags: Sequence[torch.Tag] = (),
) -> Any:
    """Define an operator in the namespace `lowtide`. Fake tensors run `fake`, by default `function`."""
    library = torch.library.Library("lowtide", "FRAGMENT")
    _libraries.append(library)
    library.define(schema, tags=tuple(tags))
    name = schema.partition("(")[0]
    if function is not None:
        library.impl(name, function, "CompositeExplicitAutograd")
        torch.library.register_fake(f"lowtide::{name}", fake or function, lib=library)
    return getattr(torch.ops.lowtide, name).default


@cache
def store_in_inductor(operator: Any) -> None:
    """Make Inductor store an operator's argument in its own buffer, channels-last if its operands are.

    Otherwise Inductor would transpose channels-last results twice.
    """
    from torch._inductor.lowering import register_lowering  # takes seconds to load

    register_lowering(operator)(_store)


@cache
def copy_in_inductor(operator: Any) -> None:
    """Make Inductor copy an argument inside the kernels that use it."""
    from torch._inductor.lowering import clone, register_lowering  # takes seconds to load

    register_lowering(operator)(clone)


@cache
def pass_in_inductor(operator: Any) -> None:
    """Make Inductor return an operator's first argument."""
    from torch._inductor.lowering import register_lowering  # takes seconds to load

    register_lowering(operator)(_pass)


@cache
def call_in_inductor(operator: Any, like: Any) -> None:
    """Make Inductor call an operator with operands in the layouts of another."""
    from torch._inductor.lowering import make_fallback, maybe_layout_constraints  # takes seconds to load

    constrain: Any = maybe_layout_constraints(like)

    def constrained(node: Any, *args: Any, **kwargs: Any) -> Any:
        return constrain(SimpleNamespace(target=like, args=node.args, kwargs=node.kwargs), *args, **kwargs)

    make_fallback(operator, None if constrain is None else constrained)


def _pass(value: Any, *_: Any) -> Any:
    return value


def _store(value: Any) -> Any:
    from torch._inductor.virtualized import V

    value.realize()
    if not any(is_view(user.target) for user in V.graph.current_node.users):  # views need contiguous buffers
        _adopt_operand_layout(getattr(value.data, "data", None), set())
    return value


def _adopt_operand_layout(buffer: Any, seen: set[str]) -> None:
    """Make an image channels-last if its operands are; skip buffers with a layout."""
    from torch._inductor.ir import ComputedBuffer, FlexibleLayout
    from torch._inductor.virtualized import V

    if not isinstance(buffer, ComputedBuffer) or not isinstance(buffer.layout, FlexibleLayout):
        return
    if len(buffer.get_size()) != len(_CHANNELS_LAST):
        return
    for name in buffer.get_read_names() - seen:
        seen.add(name)
        _adopt_operand_layout(V.graph.name_to_buffer.get(name), seen)
    if buffer.get_fill_order() == _CHANNELS_LAST:
        buffer.decide_layout()
