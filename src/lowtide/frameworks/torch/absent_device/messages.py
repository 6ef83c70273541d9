"""Messages between a model and the process that lowers its program."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lowtide.engine.costs import Device
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan
from lowtide.engine.planning.program import FormName


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Build, capture and lower a program for a device; answered by `Opened`."""

    device: Device
    name: str | None = None
    content: bytes = b""
    main: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PricedKernels:
    graph: Graph
    seconds: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Opened:
    """A program's kernels on a device, and the ops of an eager run."""

    kernels: PricedKernels
    """Of the unmodified program in its order, which plans keep."""
    unplanned: Graph
    """In Inductor's order, with all persistent memory."""
    unplanned_peak_bytes: int
    """Exact, without persistent memory."""
    unplanned_seconds: Sequence[float]
    eager: Graph
    eager_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lower:
    """Lower the opened program with a plan; answered by `LoweredPlan`."""

    plan: Plan
    allowed_bytes: int
    form: FormName = "unmodified"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweredPlan:
    peak_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class InChunks:
    """Compute the largest products in chunks; answered by `PricedKernels` or None."""

    form: FormName
    allowed_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answer:
    value: Any = None
    error: str | None = None
    message: str = ""
