"""Messages between a model and the process that lowers its program."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from lowtide.engine.costs import Device
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Build, capture and lower a program for a device; answered by `Opened`."""

    device: Device
    name: str | None = None
    """A callable that builds the program, or None if `content` is the program."""
    content: bytes = b""
    """The program, pickled by `pickled_forms`."""
    main: str | None = None
    """Path of the script that started this process."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Opened:
    """A program on a device: its kernels, and the ops that an eager run calls."""

    kernels: Graph
    """The kernels of both passes in the order of the program, which is the one that plans keep."""
    seconds: Sequence[float]
    """Estimated run time of each kernel on the device."""
    unplanned: Graph
    """The kernels in the order in which Inductor runs them without a plan, with all persistent memory."""
    unplanned_peak_bytes: int
    """Their exact peak, without persistent memory."""
    unplanned_seconds: Sequence[float]
    eager: Graph
    eager_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lower:
    """Lower the opened program with a plan of its kernels; answered by its exact peak in bytes."""

    plan: Plan
    allowed_bytes: int


SourceKind = Literal["config", "id", "callable", "sent"]
OptimizerName = Literal["adamw", "adam", "sgd", "adafactor"]
PrecisionName = Literal["float32", "bfloat16", "float16", "amp"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How to build a training step without weights."""

    kind: SourceKind
    """A configuration of Hugging Face; an id of Hugging Face or timm; a callable by name; or a program pickled by
    `pickled_forms`."""
    name: str = ""
    content: bytes = b""
    main: str | None = None
    optimizer: OptimizerName = "adamw"
    precision: PrecisionName = "float32"
    """Type of weights and activations; "amp" computes in bfloat16 with weights in float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """Build a training step and read it as PyTorch runs it eagerly; answered by `Step`, or None for another program."""

    device: Device | None
    """The CUDA device; None for tensors on "meta", whose attention is plain products."""
    recipe: Recipe
    batch: int | None = None
    """Size of the first dimension of the inputs; None for that of the program."""
    sequence: int | None = None
    """Tokens of each row, for language models; None for their usual number."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Step:
    """A training step as PyTorch runs it eagerly, with the sizes that were chosen for it."""

    graph: Graph
    batch: int | None
    """None if the inputs have no common first dimension."""
    sequence: int | None
    """None if the model has no sequences."""
    longest: int | None
    """Most tokens that the model accepts; None if that is unknown."""
    settings: str
    """Optimizer and precision in words; empty if the program chooses them."""
    code: Sequence[str]
    """Lines of Python that build the step and its batch."""
    parts: str
    """Arguments of `training_step` in that code: model, loss function and optimizer; empty for a function."""
    call: Literal["*batch", "**batch", "batch"]
    """How the code passes the batch."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answer:
    """The value of a request, or the class and message of its error."""

    value: Any = None
    error: str | None = None
    message: str = ""
