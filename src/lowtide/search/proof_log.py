"""Why no order stays within a budget, as a log: dependencies that follow from one another, and cases."""

from typing import Annotated

import msgspec

_Id = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class Need(msgspec.Struct, frozen=True, array_like=True, tag="need", forbid_unknown_fields=True):
    """A dependency: `op`, one of the two ops, needs more than the budget if `later` runs before `earlier`."""

    op: _Id
    earlier: _Id
    later: _Id


class Over(msgspec.Struct, frozen=True, array_like=True, tag="over", forbid_unknown_fields=True):
    """The op needs more than the budget; that ends a case."""

    op: _Id


class Cycle(msgspec.Struct, frozen=True, array_like=True, tag="cycle", forbid_unknown_fields=True):
    """The dependencies close a cycle; that ends a case."""


class Either(msgspec.Struct, frozen=True, array_like=True, tag="either", forbid_unknown_fields=True):
    """The case that `one` runs before `other` follows; where it ends, the opposite one does."""

    one: _Id
    other: _Id


Line = Need | Over | Cycle | Either
"""One line of a log. It holds under all lines before it, except for those of cases that have ended."""
