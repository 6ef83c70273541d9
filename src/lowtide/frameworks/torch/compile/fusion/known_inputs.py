"""What a pass of a program is given, as far as its kernels do not say: what ends with it, what shares storage."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from lowtide.frameworks.torch.internals.kernels import KernelStorage


@dataclass(frozen=True, slots=True)
class KnownInputs:
    """The inputs that end at their last use although that cannot be told, and where inputs lie that were saved."""

    away: Collection[str] = ()
    storages: Mapping[str, KernelStorage] = field(default_factory=dict[str, KernelStorage])
    """By name; what is missing has storage of its own. A view holds all that it is a view of."""


NOTHING_KNOWN = KnownInputs()
