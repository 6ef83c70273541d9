"""How Inductor compiles an operator that only says: this value is in memory from here on."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from functools import cache
from typing import Any


@cache
def store_in_inductor(operator: Any) -> None:
    """Let Inductor give an operator's argument a buffer of its own, and return that."""
    from torch._inductor.lowering import register_lowering  # takes seconds to load

    register_lowering(operator)(_store)


def _store(value: Any) -> Any:
    value.realize()
    return value
