"""How Inductor compiles operators that only say where a value lies: in memory from here on, or apart from a copy."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from functools import cache
from typing import Any

from lowtide.frameworks.torch.internals.operators import is_view

_CHANNELS_LAST = [1, 3, 2, 0]
"""The dimensions of images, the one that lies closest first."""


@cache
def store_in_inductor(operator: Any) -> None:
    """Let Inductor give an operator's argument a buffer of its own, and return that.

    Images lie as what they are made of. Inductor decides that when all is lowered, and until then takes a buffer to be
    contiguous: what is made of it and of images in the layout of convolutions would be transposed twice.
    """
    from torch._inductor.lowering import register_lowering  # takes seconds to load

    register_lowering(operator)(_store)


@cache
def copy_in_inductor(operator: Any) -> None:
    """Let Inductor copy an operator's argument within whatever kernel uses the result."""
    from torch._inductor.lowering import clone, register_lowering  # takes seconds to load

    register_lowering(operator)(clone)


def _store(value: Any) -> Any:
    from torch._inductor.virtualized import V

    value.realize()
    if not any(is_view(user.target) for user in V.graph.current_node.users):  # which asks for contiguous buffers
        _lay_out_as_operands(getattr(value.data, "data", None), set())
    return value


def _lay_out_as_operands(buffer: Any, seen: set[str]) -> None:
    """Fix the layout of a buffer for convolutions, where what it is computed from lies so; none is `seen` twice."""
    from torch._inductor.ir import ComputedBuffer
    from torch._inductor.virtualized import V

    if isinstance(buffer, ComputedBuffer):
        for name in buffer.get_read_names() - seen:
            seen.add(name)
            _lay_out_as_operands(V.graph.name_to_buffer.get(name), seen)
        if buffer.get_fill_order() == _CHANNELS_LAST:
            buffer.decide_layout()
