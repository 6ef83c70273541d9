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


class First(msgspec.Struct, frozen=True, array_like=True, tag="first", forbid_unknown_fields=True):
    """Some ops that may run in turn, next after what runs first until here, in whatever order follows.

    They fit, and no closed set between the one before and the one after them has fewer live bytes than the latter.
    """

    ops: tuple[_Id, ...]


class Last(msgspec.Struct, frozen=True, array_like=True, tag="last", forbid_unknown_fields=True):
    """Some ops that may run right before what runs last until here, the last of them first, whatever precedes them.

    They fit, no closed set between the one before and the one after them has fewer live bytes than the former, and none
    of them reads what another op that is left could write its result into.
    """

    ops: tuple[_Id, ...]


class Next(msgspec.Struct, frozen=True, array_like=True, tag="next", forbid_unknown_fields=True):
    """Cases: each of some ops runs next after what runs first; where one case ends, the following one does.

    No other op that can run next fits.
    """

    ops: tuple[_Id, ...]


class Previous(msgspec.Struct, frozen=True, array_like=True, tag="previous", forbid_unknown_fields=True):
    """Cases: each of some ops runs right before what runs last; where one case ends, the following one does.

    No other op that can run there fits.
    """

    ops: tuple[_Id, ...]


Line = Need | Over | Cycle | Either | First | Last | Next | Previous
"""One line of a log. It holds under all lines before it, except for those of cases that have ended."""
