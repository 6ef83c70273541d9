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
    """A callable that builds the program; None if `content` is the program."""
    content: bytes = b""
    main: str | None = None
    """Path of this process's script."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PricedKernels:
    """The kernels of both passes of a form, with estimated run times on the device."""

    graph: Graph
    seconds: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Opened:
    """A program on a device: its kernels, and the ops that an eager run calls."""

    kernels: PricedKernels
    """Those of the unmodified program in its order, which plans keep."""
    unplanned: Graph
    """The kernels in Inductor's order without a plan, with all persistent memory."""
    unplanned_peak_bytes: int
    """Their exact peak, without persistent memory."""
    unplanned_seconds: Sequence[float]
    eager: Graph
    eager_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lower:
    """Lower the opened program with a plan of its kernels; answered by `LoweredPlan`."""

    plan: Plan
    allowed_bytes: int
    form: FormName = "unmodified"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweredPlan:
    """The exact peak and estimated kernel time of a program lowered with a plan."""

    peak_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class InChunks:
    """Compute the largest products of the opened program in chunks; answered by `PricedKernels` or None."""

    form: FormName
    allowed_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answer:
    """The value of a request, or the class and message of its error."""

    value: Any = None
    error: str | None = None
    message: str = ""
